"""Patch the two functions of TensorFlow that divide a loss by the number of replicas."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..active_batch import active_batch
from ..patching import TENSORFLOW, Patch


def _compute_average_loss(
    original: Callable[..., Any],
    per_example_loss: Any,
    sample_weight: Any = None,
    global_batch_size: Any = None,
) -> Any:
    """Average over this replica's samples, which the step weights by their number."""
    if active_batch() is not None and global_batch_size is None:
        global_batch_size = tf.shape(per_example_loss)[0]
    return original(per_example_loss, sample_weight, global_batch_size)


def _scale_regularization_loss(original: Callable[..., Any], regularization_loss: Any) -> Any:
    """Return the whole sum, which the step counts once over all replicas."""
    if active_batch() is not None:
        return tf.reduce_sum(regularization_loss)
    return original(regularization_loss)


PATCHES = (
    Patch(
        owner=tf.nn,
        name="compute_average_loss",
        replacement=_compute_average_loss,
        why="Divides each replica's sum by its own number of samples and by the number of"
        " replicas.",
        canary="test_averaged_losses_are_divided_by_replicas",
        seen_in=TENSORFLOW,
    ),
    Patch(
        owner=tf.nn,
        name="scale_regularization_loss",
        replacement=_scale_regularization_loss,
        why="Divides a regularization loss by the number of replicas, as their losses are added"
        " up.",
        canary="test_averaged_losses_are_divided_by_replicas",
        seen_in=TENSORFLOW,
    ),
)
