"""How much arithmetic a model is, and how much of it a machine does."""

import math
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from . import _upstream

_TRIES = 5


def training_flops(model: keras.Model) -> float:
    """Floating-point operations of one training sample, a multiplication and addition as two.

    Three times those of the forward pass, as the backward pass does each product twice: for the
    gradients of the weights and of the inputs (Kaplan et al. 2020, "Scaling Laws for Neural
    Language Models", section 2.1). TensorFlow's profiler counts the forward pass: convolutions and
    dense layers in full, but only the smaller part of attention, whose products it does not know.

    Args:
        model: A built model.

    Returns:
        The operations; NaN where they cannot be counted: a model that is neither Functional nor
        Sequential, inputs whose shape is not known, or loops, as in a recurrent layer.
    """
    return 3 * _forward_flops(model)


def peak_flops_per_second(
    strategy: tf.distribute.Strategy, *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Float32 operations a second of a matrix multiplication on all devices of a strategy.

    The best of several tries on the first device, times the GPUs. Logical CPUs share one machine
    and count once.

    Args:
        strategy: Any strategy, the default one included.
        clock: Returns the time in seconds.
    """
    try:
        device = strategy.extended.worker_devices[0]
    except RuntimeError:  # the default strategy has none
        device = "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"
    on_gpus = "GPU" in device.upper()
    # Large enough that a GPU works for longer than it is waited for.
    side, products = (8192, 8) if on_gpus else (2048, 1)
    with tf.device(device):
        work = matrix_products(side, products)
        work()
        seconds = []
        for _ in range(_TRIES):
            begin = clock()
            work()
            seconds.append(clock() - begin)
    devices = strategy.num_replicas_in_sync if on_gpus else 1
    best = min(seconds)
    return devices * products * 2.0 * side**3 / best if best > 0 else math.nan


def matrix_products(side: int, count: int) -> Callable[[], Any]:
    """Work that waits for so many products of square matrices, one after another.

    Args:
        side: Rows and columns of the matrices, float32.
        count: How many products; each is `2 * side**3` operations.
    """
    a = tf.random.stateless_uniform((side, side), (0, 0)) / side

    @tf.function(autograph=False)
    def work() -> Any:
        b = a
        for _ in range(count):
            b = tf.matmul(a, b)
        return tf.reduce_sum(b)

    return lambda: work().numpy()


def _forward_flops(model: keras.Model) -> float:
    inputs = _upstream.inputs_of(model)
    shapes = [x.shape[1:] for x in keras.tree.flatten(inputs)]
    if not shapes or any(None in shape for shape in shapes):
        return math.nan
    specs = keras.tree.map_structure(lambda x: tf.TensorSpec((1, *x.shape[1:]), x.dtype), inputs)
    forward = tf.function(lambda x: model(x, training=False), autograph=False)
    graph = forward.get_concrete_function(specs).graph
    if any("While" in operation.type for operation in graph.get_operations()):
        return math.nan
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    return float(tf.compat.v1.profiler.profile(graph, cmd="op", options=options).total_float_ops)
