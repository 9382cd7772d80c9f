"""What the devices of a strategy are called by their makers."""

import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def device_names(devices: tuple[str, ...]) -> list[str]:
    """The hardware behind `devices`, e.g. `["NVIDIA H100 80GB HBM3", ...]`.

    Args:
        devices: Names as in `MirroredStrategy.devices`, e.g. `("GPU:0", "GPU:1")`.

    Returns:
        One name a device, in the same order.
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
    """What the CPU can do, in Linux's words, e.g. `avx2`; nothing where that is not told."""
    return frozenset(_told(cpuinfo, "flags").split())


def _cpu_name() -> str:
    return _told(CPUINFO, "model name") or platform.machine()


def _told(cpuinfo: Path, what: str) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    told = [line.partition(":")[2].strip() for line in lines if line.startswith(what)]
    return told[0] if told else ""
