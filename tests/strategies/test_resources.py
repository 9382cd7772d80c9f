from kdist.strategies.hardware import available_memory

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


def test_memory_of_version_2_less_the_files_that_can_be_dropped(tmp_path):
    group = {
        "proc/self/cgroup": "0::/",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/memory.max": 8 * GIB,
        "sys/fs/cgroup/memory.current": 5 * GIB,
        "sys/fs/cgroup/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file 1",
    }
    root = machine(tmp_path, group)
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
    assert available_memory(root) == 1 * GIB  # the machine has less than the group's 6


def test_memory_of_a_stricter_group_around_it(tmp_path):
    group = {
        "proc/self/cgroup": "0::/kubepods/pod1/one",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/kubepods/pod1/one/memory.max": "max",
        "sys/fs/cgroup/kubepods/pod1/memory.max": 4 * GIB,
        "sys/fs/cgroup/kubepods/memory.max": 32 * GIB,
    }
    assert available_memory(machine(tmp_path, group)) == 4 * GIB


def test_memory_of_version_1_when_the_path_is_the_hosts(tmp_path):
    group = {
        "proc/self/cgroup": "3:memory:/docker/0123",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 2 * GIB,
    }
    assert available_memory(machine(tmp_path, group)) == 2 * GIB


def test_memory_of_version_1_with_a_shared_mount(tmp_path):
    group = {
        "proc/self/cgroup": "3:cpu,memory:/x\n2:blkio:/y",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/cpu,memory/x/memory.limit_in_bytes": 3 * GIB,
        "sys/fs/cgroup/blkio/y/memory.limit_in_bytes": GIB,
    }
    assert available_memory(machine(tmp_path, group)) == 3 * GIB


def test_memory_without_a_limit(tmp_path):
    group = {
        "proc/self/cgroup": "4:memory:/",
        "proc/meminfo": meminfo(),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
    }
    root = machine(tmp_path, group)
    assert available_memory(root) == 48 * GIB


def test_memory_of_nothing(tmp_path):
    assert available_memory(tmp_path) is None
