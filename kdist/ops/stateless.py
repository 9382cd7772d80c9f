"""A pass through a model that nothing else notices."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream


@contextlib.contextmanager
def stateless_pass(model: keras.Model) -> Iterator[list[Any]]:
    """Inside, assignments to the model's variables are seen by no one else, and end with it.

    Neither moving statistics nor seeds nor metrics change (those of Keras; a raw `tf.Variable` that
    a layer assigns to is out of reach), and no strategy takes part.

    Yields:
        The tensors that stand for `model.trainable_weights`, in their order.
    """
    with tf.Graph().as_default():
        alone = tf.distribute.get_strategy()
    # Keras divides losses by the replicas of the scope that fit() may have been called in.
    with tf.distribute.ReplicaContext(alone, 0):
        # Regularizers look weights up in the scope, and fail where it has none.
        weights = [
            (weight, tf.convert_to_tensor(weight.value)) for weight in model.trainable_weights
        ]
        with keras.StatelessScope(weights, collect_losses=True):
            yield [tensor for _, tensor in weights]


def mean_loss(model: keras.Model, data: Any, *, training: bool) -> Any:
    """The model's loss on a batch, a scalar; its mean over samples where it is not reduced."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred = _upstream.call_model(model, x, training=training)
    loss = _upstream.compute_loss(model, x, y, y_pred, sample_weight, training=training)
    return tf.reduce_mean(loss)
