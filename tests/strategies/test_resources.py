import pytest
from kdist.strategies.hardware import available_memory

GIB = 2**30
AVAILABLE = f"MemTotal:  {64 * GIB // 1024} kB\nMemAvailable:  {48 * GIB // 1024} kB"
GROUPS = {
    "less the files that can be dropped": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": 8 * GIB,
            "sys/fs/cgroup/memory.current": 5 * GIB,
            "sys/fs/cgroup/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 1",
        },
        5,  # 8 - (5 - 2)
    ),
    "the machine has less than the group": (
        {
            "proc/self/cgroup": "0::/",
            "proc/meminfo": f"MemAvailable: {GIB // 1024} kB",
            "sys/fs/cgroup/memory.max": 8 * GIB,
        },
        1,
    ),
    "a stricter group around it": (
        {
            "proc/self/cgroup": "0::/kubepods/pod1/one",
            "sys/fs/cgroup/kubepods/pod1/one/memory.max": "max",
            "sys/fs/cgroup/kubepods/pod1/memory.max": 4 * GIB,
            "sys/fs/cgroup/kubepods/memory.max": 32 * GIB,
        },
        4,
    ),
    "the path is the host's": (
        {
            "proc/self/cgroup": "0::/docker/0123",
            "sys/fs/cgroup/memory.max": 2 * GIB,
        },
        2,
    ),
    "no limit": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": "max",
            "sys/fs/cgroup/memory.current": 3 * GIB,
        },
        48,
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_available_memory(tmp_path, name):
    files, expected = GROUPS[name]
    for path, text in ({"proc/meminfo": AVAILABLE} | files).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    assert available_memory(tmp_path) == expected * GIB


def test_memory_of_nothing(tmp_path):
    assert available_memory(tmp_path) is None
