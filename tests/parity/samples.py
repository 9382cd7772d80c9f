"""Data for the small models: the same on every call, easy to split unevenly."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

Data = tuple[Any, ...]


def classes(samples):
    rng = np.random.default_rng(1)
    return rng.normal(size=(samples, 6)) * 3 + 2, rng.integers(0, 3, samples)


def column_classes(samples):
    x, y = classes(samples)
    return x, y[:, None]


def one_hot(samples):
    x, y = classes(samples)
    return x, np.eye(3)[y]


def features(samples):
    return (classes(samples)[0],)


def overflowing(samples):
    """One sample, in the part of the last replica, makes the gradients infinite."""
    x, y = classes(samples)
    x[11, 0] = np.inf
    return x, y


def _sizes(x):
    return x[:, :1] * 0.1


def listed(samples):
    x, y = classes(samples)
    return [x, x[:, 1:3]], [y, _sizes(x)]


def named(samples):
    x, y = classes(samples)
    return {"wide": x, "narrow": x[:, 1:3]}, {"kind": y, "size": _sizes(x)}


def heads(samples):
    x, y = classes(samples)
    return x, {"kind": y, "size": _sizes(x)}


def series(samples):
    """Sequences of two features whose ends are zero, so masked."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(samples, 4, 2)) + 1
    lengths = rng.integers(1, 5, samples)
    x[np.arange(4) >= lengths[:, None]] = 0
    return x, rng.integers(0, 3, samples)


def tokens(samples):
    rng = np.random.default_rng(3)
    x = rng.integers(1, 10, (samples, 5)).astype("int32")
    x[np.arange(5) >= rng.integers(1, 6, samples)[:, None]] = 0
    return x, rng.integers(0, 3, samples)


WORDS = 43  # No number of replicas divides it, and a batch of 8 looks up fewer.


def words(samples):
    rng = np.random.default_rng(7)
    x = rng.integers(1, WORDS, (samples, 5)).astype("int32")
    x[np.arange(5) >= rng.integers(1, 6, samples)[:, None]] = 0
    return x, rng.integers(0, 3, samples)


def tags(samples):
    x, _ = tokens(samples)
    return x, x % 3


def images(samples):
    rng = np.random.default_rng(4)
    return rng.normal(size=(samples, 6, 6, 1)), rng.integers(0, 3, samples)


# How the data reach `fit`: each returns arguments for `fit` and `evaluate`.


def arrays(data, batch):
    return {**dict(zip(("x", "y", "sample_weight"), data, strict=False)), "batch_size": batch}


def tensors(data, batch):
    return arrays(keras.tree.map_structure(tf.convert_to_tensor, data), batch)


def dataset(data, batch):
    return {"x": tf.data.Dataset.from_tensor_slices(data).batch(batch).prefetch(1)}


def cycled(data, batch):
    """The batches of `arrays`, epoch after epoch from one iterator: several take longer to make."""
    return {"x": tf.data.Dataset.from_tensor_slices(data).batch(batch).repeat()}


def dropping_dataset(data, batch):
    """Batches whose size is known when the step is traced."""
    return {"x": tf.data.Dataset.from_tensor_slices(data).batch(batch, drop_remainder=True)}


def endless_dataset(data, batch):
    return {"x": tf.data.Dataset.from_tensor_slices(data).repeat().batch(batch)}


def ready_dataset(data, batch):
    """Batches made by the user, not by `batch`, so TensorFlow cannot see their size."""
    slices = [_part(data, rows) for rows in _rows(data, batch)]

    def batches():
        yield from slices

    signature = keras.tree.map_structure(
        lambda leaf: tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype), data
    )
    made = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return {"x": made.apply(tf.data.experimental.assert_cardinality(len(slices)))}


def _rows(data, batch):
    samples = len(keras.tree.flatten(data)[0])
    return [slice(start, start + batch) for start in range(0, samples, batch)]


def _part(data, rows):
    return keras.tree.map_structure(lambda leaf: leaf[rows], data)


def _aligned(array):
    """A copy on whose memory TensorFlow makes a tensor, as it does by chance with any array."""
    memory = np.zeros(array.nbytes + 64, "uint8")
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class _Batches(keras.utils.PyDataset):
    """Views of arrays that it keeps."""

    def __init__(self, data, batch):
        super().__init__()
        self.data = keras.tree.map_structure(_aligned, data)
        self.rows = _rows(data, batch)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return _part(self.data, self.rows[index])


def py_dataset(data, batch):
    return {"x": _Batches(data, batch)}


def generator(data, batch):
    """Endless, as Keras wants generators over several epochs, and of another length than these."""
    period = [*_rows(data, batch), slice(0, batch - 1)]

    def batches():
        while True:
            for rows in period:
                yield _part(data, rows)

    return {"x": batches()}


def sparse_generator(data, batch):
    """The same with sparse inputs."""
    dense = generator(data, batch)["x"]
    return {"x": ((tf.sparse.from_dense(x), *rest) for x, *rest in dense)}
