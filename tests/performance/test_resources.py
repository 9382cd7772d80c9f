import pytest
from kdist.performance.resources import (
    available_memory,
    cpu_quota,
    memory_limit,
    total_memory,
)

GIB = 2**30


def machine(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return tmp_path


def meminfo(total=64, available=48):
    return "\n".join(
        f"{name}:{'':8}{gib * GIB // 1024} kB"
        for name, gib in (
            ("MemTotal", total),
            ("MemAvailable", available),
        )
    )


CPU = {
    "version 2": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
    "version 2, no limit": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"},
        None,
    ),
    "version 2, a group around it is stricter": (
        {
            "proc/self/cgroup": "0::/kubepods/pod1/one",
            "sys/fs/cgroup/kubepods/pod1/one/cpu.max": "max 100000",
            "sys/fs/cgroup/kubepods/pod1/cpu.max": "400000 100000",
            "sys/fs/cgroup/kubepods/cpu.max": "3200000 100000",
        },
        4.0,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000",
        },
        2.0,
    ),
    "version 1, the path is the host's": (
        {
            "proc/self/cgroup": "3:cpu:/docker/0123",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        0.5,
    ),
    "version 1, no limit": (
        {
            "proc/self/cgroup": "3:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        None,
    ),
    "none": ({}, None),
}


@pytest.mark.parametrize("name", CPU)
def test_cpu_quota(name, tmp_path):
    files, cores = CPU[name]
    assert cpu_quota(machine(tmp_path, files)) == cores


def test_memory_of_version_2_less_the_files_that_can_be_dropped(tmp_path):
    group = {
        "proc/self/cgroup": "0::/",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/memory.max": 8 * GIB,
        "sys/fs/cgroup/memory.current": 5 * GIB,
        "sys/fs/cgroup/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 1",
    }
    root = machine(tmp_path, group)
    assert memory_limit(root) == total_memory(root) == 8 * GIB
    assert available_memory(root) == 5 * GIB  # 8 - (5 - 2)


def test_memory_of_version_1(tmp_path):
    group = {
        "proc/self/cgroup": "4:memory:/",
        "proc/meminfo": meminfo(available=1),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 8 * GIB,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
        "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
    }
    root = machine(tmp_path, group)
    assert memory_limit(root) == 8 * GIB
    assert available_memory(root) == 1 * GIB  # the machine has less than the group's 6


def test_memory_without_a_limit(tmp_path):
    group = {
        "proc/self/cgroup": "4:memory:/",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
    }
    root = machine(tmp_path, group)
    assert memory_limit(root) is None
    assert total_memory(root) == 64 * GIB
    assert available_memory(root) == 48 * GIB


def test_memory_of_nothing(tmp_path):
    assert total_memory(tmp_path) is None
    assert available_memory(tmp_path) is None
