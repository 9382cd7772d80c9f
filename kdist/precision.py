"""The number formats that a run can compute in, by name."""

import contextlib
from collections.abc import Iterator, Sequence

from .errors import UserError

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "tf32")


@contextlib.contextmanager
def computing_in(precision: str, devices: Sequence[str]) -> Iterator[None]:
    """Make and train models in a number format; what was set before is set again at the end.

    Weights and batch norm's statistics are float32 in all of them. `"mixed_bfloat16"` and
    `"mixed_float16"` are Keras's policies of these names; Keras scales the loss for the latter, so
    that small gradients do not vanish (Micikevicius et al. 2018, "Mixed Precision Training").
    `"tf32"` has a GPU's Tensor Cores round the factors of products to 10 bits; TensorFlow does so
    unless told otherwise, `"float32"` tells it.

    Args:
        precision: One of `PRECISIONS`.
        devices: Names of the devices, e.g. `("GPU:0", "GPU:1")`.

    Raises:
        UserError: `"tf32"` without a GPU.
    """
    import keras
    import tensorflow as tf

    if precision == "tf32" and not all("GPU" in name.upper() for name in devices):
        raise UserError(
            f"precision=tf32 is a format of NVIDIA GPUs, and the run would be on"
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
