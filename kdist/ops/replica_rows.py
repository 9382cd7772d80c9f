"""Take a replica's part of a batch."""

from typing import Any

import keras
import tensorflow as tf

from .. import _upstream


def replica_rows(data: Any) -> Any:
    """Return this replica's rows of a batch that is not divided yet, as in `train_on_batch`."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    place = _upstream.replica_place()

    def rows(tensor: Any) -> Any:
        tensor = tf.convert_to_tensor(tensor)
        size = -(-tf.shape(tensor)[0] // replicas)
        start = place * size
        return tensor[start : start + size]

    return keras.tree.map_structure(lambda leaf: None if leaf is None else rows(leaf), data)
