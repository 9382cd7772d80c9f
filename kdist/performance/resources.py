"""The memory that a container may use.

Containers are Linux's control groups, versions 1 and 2.
"""

import contextlib
import re
from pathlib import Path

ROOT = Path("/")


def available_memory(root: Path = ROOT) -> int | None:
    """Return the bytes that a new program can use without swapping; `None` if unknown.

    The control group's memory for inactive files counts as available: Linux frees it on demand.

    Args:
        root: The folder with `proc` and `sys`.
    """
    kilobytes = _number_in(root / "proc/meminfo", pattern=r"^MemAvailable:\s+(\d+) kB$")
    left = [] if kilobytes is None else [kilobytes * 1024]
    for folder in _folders(root):
        # Without a limit, version 2 has a word, and version 1 a number that exceeds any memory.
        limit = _number_in(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number_in(folder / "memory.current", folder / "memory.usage_in_bytes") or 0
        # The total of version 1 includes the groups within the group.
        inactive = (
            _number_in(folder / "memory.stat", pattern=r"^total_inactive_file (\d+)$")
            or _number_in(folder / "memory.stat", pattern=r"^inactive_file (\d+)$")
            or 0
        )
        if limit is not None:
            left.append(max(limit - max(used - inactive, 0), 0))
    return min(left, default=None)


def _folders(root: Path) -> list[Path]:
    """Return the existing folders of this process's memory control group and of its parent groups.

    Within a container, `/proc/self/cgroup` may name the path on the host: then only the topmost
    folder exists, and it belongs to the container.
    """
    base = root / "sys/fs/cgroup"
    folders: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        mounts = [base / controllers, base / "memory"] if controllers else [base]
        inner = [part for part in path.split("/") if part not in ("", "..")]
        for mount in mounts:
            folders += [mount.joinpath(*inner[:depth]) for depth in range(len(inner), -1, -1)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _number_in(*paths: Path, pattern: str = r"^(\d+)$") -> int | None:
    """Return the number that a pattern finds in the first of the files that has it."""
    for path in paths:
        with contextlib.suppress(OSError):
            found = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.M)
            if found:
                return int(found[1])
    return None
