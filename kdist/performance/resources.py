"""The cores and memory that a container may use.

Containers are Linux's control groups, versions 1 and 2.
"""

import re
from pathlib import Path

ROOT = Path("/")
# Without a limit, version 1 has the largest number of pages.
_UNLIMITED = 2**60


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many cores' time the control group may use, such as 1.5; `None` for no limit.

    `docker run --cpus 1.5` and a Kubernetes `limits: cpu` set the quota. Programs that count cores
    do not see the quota: they start a thread for each core of the machine, and are stopped for the
    rest of each period (0.1 s) once the threads have used up the quota.

    Args:
        root: The folder with `proc` and `sys`.
    """
    quotas = []
    for folder in _folders(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota = _text(folder / "cpu.cfs_quota_us")
            period = _text(folder / "cpu.cfs_period_us")
        cores = _number(quota), _number(period)
        if cores[0] is not None and cores[0] > 0 and cores[1]:
            quotas.append(cores[0] / cores[1])
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Return the bytes of memory that the control group may use; `None` for no limit.

    Args:
        root: The folder with `proc` and `sys`.
    """
    return min((limit for limit, _ in _memory(root)), default=None)


def total_memory(root: Path = ROOT) -> int | None:
    """Return the bytes of the machine's memory, or of the container's share; `None` if unknown.

    Args:
        root: The folder with `proc` and `sys`.
    """
    return _least(_meminfo(root, "MemTotal"), memory_limit(root))


def available_memory(root: Path = ROOT) -> int | None:
    """Return the bytes that a new program can use without swapping; `None` if unknown.

    The control group's memory for inactive files counts as available: Linux frees it on demand.

    Args:
        root: The folder with `proc` and `sys`.
    """
    left = [max(limit - used, 0) for limit, used in _memory(root)]
    return _least(_meminfo(root, "MemAvailable"), *left)


def _memory(root: Path) -> list[tuple[int, int]]:
    """Return the limit and the used bytes of each control group that has a limit.

    Memory for inactive files does not count as used.
    """
    found = []
    for folder in _folders(root, "memory"):
        limit = _number(_text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes"))
        if limit is None or limit >= _UNLIMITED:
            continue
        used = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
        statistics = _text(folder / "memory.stat")
        files = re.search(r"^total_inactive_file (\d+)$", statistics, re.M) or re.search(
            r"^inactive_file (\d+)$", statistics, re.M
        )
        free = int(files[1]) if files else 0
        found.append((int(limit), max(int(_number(used) or 0) - free, 0)))
    return found


def _folders(root: Path, controller: str) -> list[Path]:
    """Return the existing folders of this process's control group and of its parent groups.

    Within a container, `/proc/self/cgroup` may name the path on the host: then only the topmost
    folder exists, and it belongs to the container.
    """
    base = root / "sys/fs/cgroup"
    folders: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = [base / controllers, base / controller] if controllers else [base]
        inner = [part for part in path.split("/") if part not in ("", "..")]
        for mount in mounts:
            folders += [mount.joinpath(*inner[:depth]) for depth in range(len(inner), -1, -1)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _meminfo(root: Path, name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _text(root / "proc/meminfo"), re.M)
    return int(found[1]) * 1024 if found else None


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?\d+", text) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
