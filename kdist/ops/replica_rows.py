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
        if isinstance(tensor, tf.SparseTensor):
            # It cannot be indexed.
            shape = tf.shape(tensor, out_type=tf.int64)
            start, size = part_of(shape[0])
            begin = tf.concat([[start], tf.zeros_like(shape[1:])], 0)
            return tf.sparse.slice(tensor, begin, tf.concat([[size], shape[1:]], 0))
        if isinstance(tensor, tf.RaggedTensor):
            start, size = part_of(tensor.nrows())
        else:
            tensor = tf.convert_to_tensor(tensor)
            start, size = part_of(tf.shape(tensor)[0])
        return tensor[start : start + size]

    def part_of(count: Any) -> tuple[Any, Any]:
        size = -(-count // replicas)
        return tf.cast(place, size.dtype) * size, size

    return keras.tree.map_structure(lambda leaf: None if leaf is None else rows(leaf), data)
