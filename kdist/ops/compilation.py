"""Where XLA's fused loops pay."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Below this number of values a sample, XLA's call costs more than its fused loops save.
SMALLEST_COMPILED_SAMPLE = 2048


def worth_compiling(x: Any) -> bool:
    """Whether XLA's fused loops pay for inputs `x`: on CPUs, for large samples of a fixed shape.

    They halve the time of a large layer, which is bound by memory. XLA compiles once for every
    shape it meets, so only the batch may vary. GPUs have cuDNN's kernels.
    """
    sample = x.shape[1:]
    if not sample.is_fully_defined() or sample.num_elements() < SMALLEST_COMPILED_SAMPLE:
        return False
    return not tf.config.list_logical_devices("GPU")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as XLA compiles it, for any number of samples."""
    fused: Callable[..., Any] = tf.function(
        function, jit_compile=True, autograph=False, reduce_retracing=True
    )
    return fused
