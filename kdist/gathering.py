"""`gather` and `sum_gradients`: what a user's step needs of all replicas."""

from typing import Any

import keras
import tensorflow as tf

from . import _upstream


def gather(rows: Any) -> Any:
    """The rows of the global batch, from each replica's own.

    What is computed from all samples together (a contrastive loss, a sum, the root of a mean) is
    the same on any number of replicas when it is computed from gathered rows. Gradients flow.

    Args:
        rows: A tensor or a structure of tensors, each with a row for every sample of this replica,
            or several; on each replica the same number of them a sample.

    Returns:
        The same with the rows of all replicas, in the batch's order, on every replica. On one
        replica, and outside of a step, `rows` itself.

    Example:
        ```python
        def train_step(self, images):
            with tf.GradientTape() as tape:
                features = kdist.gather(self.encoder(images))
                similarities = features @ keras.ops.transpose(features)
                ...
        ```
    """
    batch = _upstream.active_batch()
    if batch is not None:
        return _upstream.gather(batch, rows)
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return rows
    return keras.tree.map_structure(lambda leaf: context.all_gather(leaf, axis=0), rows)


def sum_gradients(gradients: Any) -> Any:
    """The gradients of the global batch, to be changed by hand before an optimizer applies them.

    `optimizer.apply` sums gradients over replicas by itself; those of this function it takes as
    they are. Needed where a step clips, normalizes or otherwise changes gradients in a way that
    does not go with a sum, or keeps them.

    Args:
        gradients: What `tape.gradient(loss, variables)` returned within a `train_step`, `None`
            for variables that the loss does not depend on.

    Returns:
        A list of as many. On one replica, and outside of a step, `gradients` itself.

    Example:
        ```python
        gradients = kdist.sum_gradients(tape.gradient(loss, self.trainable_variables))
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        self.optimizer.apply(gradients, self.trainable_variables)
        ```
    """
    batch = _upstream.active_batch()
    if batch is None or not batch.is_own_step:
        return gradients
    return batch.global_gradients(list(gradients), [None] * len(gradients))
