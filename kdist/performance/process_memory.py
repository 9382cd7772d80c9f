"""The memory of this process: what it has, what it had at most, and a limit."""

import contextlib
import re
import resource
from pathlib import Path

_RESET_PEAK = "5"


def memory_now() -> dict[str, int]:
    """Return the bytes of this process, as Linux counts them: `VmRSS`, `VmHWM`, `VmData`."""
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(Vm\w+):\s+(\d+) kB$", text, re.M)}


def reset_peak() -> None:
    """Let `VmHWM` begin anew: what was needed to make the data is not the training's."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def limit_memory(more: int | None) -> bool:
    """Let this process allocate so many bytes more: beyond, an allocation fails at once.

    The limit is that of the data segment (`setrlimit`, `RLIMIT_DATA`), which since Linux 4.7
    counts all private memory that can be written. TensorFlow then raises an error, long before the
    machine has to swap or to end programs.

    Args:
        more: `None` for no limit.

    Returns:
        Whether there is a limit now.
    """
    used = memory_now().get("VmData")
    if more is None or used is None:
        return False
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + more
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    return True
