"""The memory of this process: what it has, what it had at most, and a limit."""

import contextlib
import re
import resource
from collections.abc import Mapping, Sequence
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


def peak_since(before: Mapping[str, int], devices: Sequence[str]) -> int | None:
    """Return the bytes that a training had at most, of all its replicas; `None` if unknown.

    Args:
        before: What `memory_now` said before it, after `reset_peak`.
        devices: Of its strategy, such as `("GPU:0",)`; of GPUs TensorFlow counts the bytes.
    """
    if devices[0].startswith("GPU"):
        import tensorflow as tf

        info = [tf.config.experimental.get_memory_info(device) for device in devices]
        return sum(int(one["peak"]) for one in info)
    now = memory_now()
    if "VmHWM" not in now or "VmRSS" not in before:
        return None
    return max(now["VmHWM"] - before["VmRSS"], 0)


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
