"""`gather`: the rows of all replicas."""

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
