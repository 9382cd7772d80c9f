"""Measure the inputs of a model's batch norms, without changing the model's variables."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from ..spmd.replica_reductions import merge_moments


class Moments(NamedTuple):
    """Count, mean and biased variance of each channel's values, as three vectors."""

    count: Any
    mean: Any
    variance: Any


def input_moments(norm: Any, inputs: Any, mask: Any = None) -> Any:
    """Return count, mean and variance of the inputs of a batch norm, shape `(3, channels)`.

    The mask has booleans, with one dimension fewer than the inputs; `None` counts all values.
    """
    x = tf.cast(inputs, keras.backend.result_type(inputs.dtype.name, "float32"))
    axes = [axis for axis in range(len(x.shape)) if axis != norm.axis % len(x.shape)]
    if mask is None:
        is_counted = tf.fill(tf.shape(x), True)
    else:
        is_counted = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(x))
    count = tf.reduce_sum(tf.cast(is_counted, x.dtype), axes, keepdims=True)
    mean = tf.math.divide_no_nan(tf.reduce_sum(tf.where(is_counted, x, 0), axes, True), count)
    squares = tf.where(is_counted, tf.math.squared_difference(x, mean), 0)
    variance = tf.math.divide_no_nan(tf.reduce_sum(squares, axes, True), count)
    return tf.reshape(tf.stack([count, mean, variance]), (3, -1))


def merge_input_moments(parts: Any) -> Moments:
    """Merge `input_moments` of several batches, shape `(batches, 3, channels)`.

    If no value was counted, count, mean and variance are 0.
    """
    counts, means, variances = tf.unstack(parts, axis=1)
    count = tf.reduce_sum(counts, 0)
    shares = tf.math.divide_no_nan(counts, count)
    return Moments(count, *merge_moments(shares, means, variances))


@contextlib.contextmanager
def keep_variables(model: keras.Model) -> Iterator[None]:
    """Undo all changes of the model's variables after the `with` block.

    Moving statistics, seeds and metrics do not change. Inside the block there is no strategy. Only
    Keras variables are restored: a `tf.Variable` that a layer assigns to keeps its new value.
    """
    with tf.Graph().as_default():
        default_strategy = tf.distribute.get_strategy()
    # Under a strategy's scope, Keras would divide losses by the number of replicas.
    with tf.distribute.ReplicaContext(default_strategy, 0):
        # Regularizers look up the weights in the `StatelessScope`, and fail if they are missing.
        weights = [
            (weight, tf.convert_to_tensor(weight.value)) for weight in model.trainable_weights
        ]
        with keras.StatelessScope(weights, collect_losses=True):
            yield


@contextlib.contextmanager
def observe_calls(norms: Sequence[Any], observe: Callable[..., Any]) -> Iterator[None]:
    """In the `with` block, call `observe(norm, call, inputs, **kwargs)` instead of a batch norm.

    `observe` returns the layer's outputs; its argument `call` is the layer's original method.
    """
    try:
        for norm in norms:
            norm.call = functools.partial(observe, norm, norm.call)
        yield
    finally:
        for norm in norms:
            norm.__dict__.pop("call", None)
