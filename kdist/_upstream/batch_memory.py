"""Copy batches, so that a step cannot overwrite the user's NumPy arrays."""

from typing import Any

import tensorflow as tf


def copy_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset of the same batches, each copied.

    The tensors of a dataset from Python (`from_generator`, `numpy_function`, Keras's `PyDataset`)
    may share the memory of a NumPy array. TensorFlow does not compute in place on such a tensor,
    but does on a slice of it, such as the rows of a replica (`SubBuffer` in TensorFlow 2.21's
    tensor.cc): the step overwrites the array, and the next epoch trains on the overwritten data. On
    GPUs the rows of a replica are copies anyway.
    """
    is_tuple = type(dataset.element_spec) is tuple

    def copy(*batch: Any) -> Any:
        copies = tf.nest.map_structure(_copy, batch, expand_composites=True)
        return copies if is_tuple else copies[0]

    return dataset.map(copy)


def _copy(value: Any) -> Any:
    plain = isinstance(value, tf.Tensor) and value.dtype not in (tf.variant, tf.resource)
    return tf.raw_ops.DeepCopy(x=value) if plain else value
