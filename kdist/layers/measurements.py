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

    Moving statistics, seeds and metrics do not change, and there is no strategy inside the block.
    Only Keras's variables are restored, not a `tf.Variable` that a layer assigns to.

    Yields:
        The tensors that stand for `model.trainable_weights`, in their order.
    """
    with tf.Graph().as_default():
        default_strategy = tf.distribute.get_strategy()
    # Keras divides losses by the number of replicas if fit() was called in a strategy's scope.
    with tf.distribute.ReplicaContext(default_strategy, 0):
        # Regularizers look up weights in the scope, and fail without them.
        weights = [
            (weight, tf.convert_to_tensor(weight.value)) for weight in model.trainable_weights
        ]
        with keras.StatelessScope(weights, collect_losses=True):
            yield [tensor for _, tensor in weights]


def mean_loss(model: keras.Model, data: Any, *, training: bool) -> Any:
    """Return the model's loss on a batch, a scalar: its mean over samples if not reduced."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred = call_model(model, x, training=training)
    loss = compute_loss(model, x, y, y_pred, sample_weight, training=training)
    return tf.reduce_mean(loss)
