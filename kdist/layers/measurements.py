"""Run a model without changing its variables, and observe its batch norms meanwhile."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf


@contextlib.contextmanager
def stateless_pass(model: keras.Model) -> Iterator[None]:
    """Undo all changes of the model's variables after the `with` block.

    Moving statistics, seeds and metrics do not change. Inside the block there is no strategy. Only
    Keras variables are restored: a `tf.Variable` that a layer assigns to keeps its new value.
    """
    with tf.Graph().as_default():
        default_strategy = tf.distribute.get_strategy()
    # Under a strategy's scope, Keras would divide losses by the number of replicas.
    with tf.distribute.ReplicaContext(default_strategy, 0):
        # Regularizers look up the weights in the scope, and fail without them.
        weights = [
            (weight, tf.convert_to_tensor(weight.value)) for weight in model.trainable_weights
        ]
        with keras.StatelessScope(weights, collect_losses=True):
            yield


@contextlib.contextmanager
def observed_calls(norms: Sequence[Any], observe: Callable[..., Any]) -> Iterator[None]:
    """Replace each call of a batch norm by `observe(norm, call, inputs, **kwargs)` in the block.

    Args:
        norms: Batch norm layers.
        observe: Returns the layer's outputs; `call` is the layer's own.
    """
    try:
        for norm in norms:
            norm.call = functools.partial(observe, norm, norm.call)
        yield
    finally:
        for norm in norms:
            norm.__dict__.pop("call", None)
