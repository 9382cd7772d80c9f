"""The number formats of `kdist train --precision`."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal

from ..errors import UserError

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16", "tf32"]


@contextlib.contextmanager
def precision_scope(precision: str, devices: Sequence[str]) -> Iterator[None]:
    """Make and train models in a number format, and restore the previous format at the end.

    Weights and batch norm statistics are float32 in all formats. `"mixed_bfloat16"` and
    `"mixed_float16"` are Keras policies. With `"mixed_float16"`, Keras scales the loss so that
    small gradients do not underflow (Micikevicius et al. 2018, "Mixed Precision Training"). With
    `"tf32"`, the Tensor Cores of a GPU round the factors of products to 10 bits of mantissa. TF32
    is TensorFlow's default; `"float32"` turns it off.

    Args:
        precision: A value of `Precision`.
        devices: Names of the devices, e.g. `("GPU:0", "GPU:1")`.

    Raises:
        UserError: `precision` is `"tf32"` and a device is not a GPU.
    """
    import keras
    import tensorflow as tf

    from ..strategies.devices import are_gpus

    if precision == "tf32" and not are_gpus(devices):
        raise UserError(
            f"precision=tf32 needs NVIDIA GPUs, but the run would be on"
            f" {', '.join(devices)}: choose float32 or mixed_bfloat16"
        )
    policy = keras.config.dtype_policy()
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    keras.config.set_dtype_policy("float32" if precision == "tf32" else precision)
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
