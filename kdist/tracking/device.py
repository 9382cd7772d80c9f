"""The product names of the devices that a model trains on."""

from typing import Any

import tensorflow as tf

from ..distribute.exact_strategy import ExactStrategy
from ..performance.hardware import device_names


def device_of(strategy: Any) -> str:
    """Return the product names of a strategy's devices, each once, such as `NVIDIA H100 80GB HBM3`.

    Args:
        strategy: A `tf.distribute.Strategy`. If it is not kdist's, the first device is named.
    """
    devices: tuple[str, ...] = ("GPU:0",) if tf.config.list_logical_devices("GPU") else ("CPU:0",)
    if isinstance(strategy, ExactStrategy):
        devices = strategy.devices
    return ", ".join(dict.fromkeys(device_names(devices)))
