"""The memory that a container may use.

Containers are Linux's control groups, versions 1 and 2.
"""

import re
from pathlib import Path

ROOT = Path("/")
# Without a limit, version 1 has the largest number of pages.
_UNLIMITED = 2**60


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
    for folder in _folders(root):
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


def _folders(root: Path) -> list[Path]:
    """Return the existing folders of this process's memory control group and of its parent groups.

    Within a container, `/proc/self/cgroup` may name the path on the host: then only the topmost
    folder exists, and it belongs to the container.
    """
    base = root / "sys/fs/cgroup"
    folders: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        mounts = [base / controllers, base / "memory"] if controllers else [base]
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
