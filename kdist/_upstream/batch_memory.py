"""Batches that own their memory, so that no step writes into a user's arrays."""

from typing import Any

import tensorflow as tf


def copy_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The same batches, copied.

    What Python gives to a dataset (`from_generator`, `numpy_function`, Keras's `PyDataset`) may be
    a tensor on the memory of a NumPy array. TensorFlow knows not to compute in place there, but
    forgets it for a slice, such as a replica's rows (`SubBuffer` in TensorFlow 2.21's tensor.cc):
    a step then overwrites the array, and the next epoch trains on what it left. On GPUs a
    replica's rows are copies anyway.
    """
    in_a_tuple = type(dataset.element_spec) is tuple

    def copied(*batch: Any) -> Any:
        copies = tf.nest.map_structure(_copied, batch, expand_composites=True)
        return copies if in_a_tuple else copies[0]

    return dataset.map(copied)


def _copied(value: Any) -> Any:
    plain = isinstance(value, tf.Tensor) and value.dtype not in (tf.variant, tf.resource)
    return tf.raw_ops.DeepCopy(x=value) if plain else value
