"""How much arithmetic a model is, and how much of it a machine does."""

import time
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

_MATMUL = 2048
_TRIES = 5
_known: "weakref.WeakKeyDictionary[keras.Model, int]" = weakref.WeakKeyDictionary()


def training_flops(model: keras.Model) -> int:
    """Floating-point operations of one training sample, a multiplication and addition as two.

    Three times those of the forward pass, as the backward pass does each product twice: for the
    gradients of the weights and of the inputs (Kaplan et al. 2020, "Scaling Laws for Neural
    Language Models", section 2.1). The forward pass is counted by TensorFlow's profiler.

    Args:
        model: A built model with inputs of known shape.

    Returns:
        The operations, 0 where the profiler knows none of the model's.
    """
    if model not in _known:
        _known[model] = 3 * _forward_flops(model)
    return _known[model]


def peak_flops_per_second(
    strategy: tf.distribute.Strategy, *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Float32 operations a second of a matrix multiplication on all devices of a strategy.

    The best of several, of 2048 by 2048 numbers. Logical CPUs share one machine and count once.

    Args:
        strategy: Any strategy.
        clock: Returns the time in seconds.
    """
    devices = strategy.extended.worker_devices
    with tf.device(devices[0]):
        a = tf.random.stateless_uniform((_MATMUL, _MATMUL), (0, 0))
        product = tf.function(lambda: tf.reduce_sum(tf.matmul(a, a)))
        product().numpy()
        seconds = []
        for _ in range(_TRIES):
            begin = clock()
            product().numpy()  # waits for the device
            seconds.append(clock() - begin)
    separate = 1 if "CPU" in devices[0].upper() else len(devices)
    best = min(seconds)
    return separate * 2 * _MATMUL**3 / best if best > 0 else float("nan")


def _forward_flops(model: keras.Model) -> int:
    def forward(*inputs: Any) -> Any:
        return model(inputs if len(inputs) > 1 else inputs[0], training=False)

    specs = [tf.TensorSpec((1, *x.shape[1:]), x.dtype) for x in model.inputs]
    graph = tf.function(forward, autograph=False).get_concrete_function(*specs).graph
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    return int(tf.compat.v1.profiler.profile(graph, cmd="op", options=options).total_float_ops)
