"""Measure a model's loss without changing its variables."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from .._upstream.internals import call_model, compute_loss


@contextlib.contextmanager
def stateless_pass(model: keras.Model) -> Iterator[list[Any]]:
    """Undo all changes of the model's variables after the `with` block.

    Moving statistics, seeds and metrics do not change. Inside the block there is no strategy. Only
    Keras variables are restored: a `tf.Variable` that a layer assigns to keeps its new value.

    Yields:
        The tensors that replace `model.trainable_weights`, in the same order.
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
            yield [tensor for _, tensor in weights]


def mean_loss(model: keras.Model, data: Any, *, training: bool) -> Any:
    """Return the model's scalar loss on a batch; an unreduced loss is averaged over samples."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred = call_model(model, x, training=training)
    loss = compute_loss(model, x, y, y_pred, sample_weight, training=training)
    return tf.reduce_mean(loss)
