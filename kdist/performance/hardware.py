"""The hardware behind a strategy's devices."""

import datetime
import os
import platform
from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")
_INSTRUCTION_SETS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def host() -> dict[str, Any]:
    """Describe the machine, without its GPUs, and the date, as plain data."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": device_names(("CPU:0",))[0],
        "cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in _INSTRUCTION_SETS if name in cpu_flags()],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def device_names(devices: tuple[str, ...]) -> list[str]:
    """Return the product names of devices, e.g. `["NVIDIA H100 80GB HBM3", ...]`.

    Args:
        devices: Names as in `MirroredStrategy.devices`, e.g. `("GPU:0", "GPU:1")`.

    Returns:
        One name per device, in the same order.
    """
    return [_name(device) for device in devices]


def _name(device: str) -> str:
    if device.startswith("CPU"):
        return _cpu_name()
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    index = int(device.partition(":")[2])
    if index >= len(gpus):
        return device  # a logical part of a GPU
    details = tf.config.experimental.get_device_details(gpus[index])
    return str(details.get("device_name", device))


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return the CPU's feature flags as Linux names them, e.g. `avx2`; empty if unknown."""
    return frozenset(_read_field(cpuinfo, "flags").split())


def _cpu_name() -> str:
    return _read_field(CPUINFO, "model name") or platform.machine()


def _read_field(cpuinfo: Path, name: str) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")
