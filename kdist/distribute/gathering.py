"""`gather` and `sum_gradients`: values of all replicas, for a custom training step."""

from typing import Any

import keras
import tensorflow as tf

from .. import _upstream


def gather(rows: Any) -> Any:
    """Gather the rows of all replicas into those of the global batch.

    Values computed from all samples together (a contrastive loss, a sum, the root of a mean) are
    the same on any number of replicas if they are computed from gathered rows. Gradients flow
    through this function.

    Args:
        rows: A tensor or nested structure of tensors, shape `(rows of this replica, ...)`, with one
            or more rows per sample. All replicas have the same number of rows per sample.

    Returns:
        The same structure with the rows of all replicas in the order of the batch, shape
        `(rows of all replicas, ...)`. On one replica, or outside a step, `rows` itself.

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
    """Sum gradients over replicas, so that a step can change them before applying them.

    Use it if a custom `train_step` clips, normalizes, stores or otherwise changes gradients in a
    way that does not commute with a sum. `optimizer.apply` normally sums gradients over replicas,
    but applies the results of this function as they are.

    Args:
        gradients: The result of `tape.gradient(loss, variables)` within a `train_step`; `None`
            for variables that the loss does not depend on.

    Returns:
        A list of the same length. On one replica, or outside a step, `gradients` itself.

    Example:
        ```python
        gradients = kdist.sum_gradients(tape.gradient(loss, self.trainable_variables))
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        self.optimizer.apply(gradients, self.trainable_variables)
        ```
    """
    batch = _upstream.active_batch()
    if batch is None or not batch.is_custom_step:
        return gradients
    return batch.gradients.sum_over_replicas(list(gradients), [None] * len(gradients))
