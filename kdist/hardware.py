"""What the devices of a strategy are called by their makers."""

import platform
from pathlib import Path


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


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
