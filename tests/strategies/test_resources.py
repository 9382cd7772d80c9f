import pytest
from kdist.strategies.hardware import available_memory

GIB = 2**30
AVAILABLE = f"MemTotal:  {64 * GIB // 1024} kB\nMemAvailable:  {48 * GIB // 1024} kB"
GROUPS = {
    "version 2 less the files that can be dropped": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": 8 * GIB,
            "sys/fs/cgroup/memory.current": 5 * GIB,
            "sys/fs/cgroup/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 1",
        },
        5,  # 8 - (5 - 2)
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 8 * GIB,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
            "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
        },
        6,
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
    "version 1 when the path is the host's": (
        {
            "proc/self/cgroup": "3:memory:/docker/0123",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 2 * GIB,
        },
        2,
    ),
    "version 1 with a shared mount": (
        {
            "proc/self/cgroup": "3:cpu,memory:/x\n2:blkio:/y",
            "sys/fs/cgroup/cpu,memory/x/memory.limit_in_bytes": 3 * GIB,
            "sys/fs/cgroup/blkio/y/memory.limit_in_bytes": GIB,
        },
        3,
    ),
    "no limit": (
        {
            "proc/self/cgroup": "4:memory:/",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
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
