"""What Keras's iterators know of the data before a batch is read."""

from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter


def global_batch_of(iterator: Any, data_batch: Any) -> int | None:
    """Samples in a full batch of this data; `None` where the data does not say."""
    if iterator is None:
        return int(keras.tree.flatten(data_batch)[0].shape[0])
    if isinstance(iterator.data_adapter, ArrayDataAdapter):
        return int(iterator.data_adapter.batch_size)
    peeked = getattr(iterator.data_adapter, "_first_batches", None)  # of a generator
    if peeked:
        return int(keras.tree.flatten(peeked[0])[0].shape[0])
    dataset = getattr(iterator.data_adapter, "_dataset", None)
    return _batch_size(dataset) if isinstance(dataset, tf.data.Dataset) else None


def _batch_size(dataset: tf.data.Dataset) -> int | None:
    """What `batch` was given; `element_spec` has it only where incomplete batches are dropped."""
    if hasattr(dataset, "_batch_size"):
        return int(dataset._batch_size)
    kind = type(dataset).__name__.removeprefix("_").removesuffix("Dataset")
    if kind not in _KEEP_BATCHES:
        return None
    # A scalar beside a batch, a number to draw by for one, is none.
    sources = [s for s in dataset._inputs() if kind != "Zip" or not _is_of_scalars(s)]
    sizes = {_batch_size(source) for source in sources}
    return sizes.pop() if len(sizes) == 1 else None


def _is_of_scalars(dataset: tf.data.Dataset) -> bool:
    shapes = (getattr(leaf, "shape", None) for leaf in keras.tree.flatten(dataset.element_spec))
    return all(shape is not None and shape.rank == 0 for shape in shapes)


_KEEP_BATCHES = (
    *("AssertCardinality", "Cache", "Map", "Options", "ParallelMap", "Prefetch"),
    *("Repeat", "Shuffle", "Skip", "Take", "Zip"),
)


def batch_spec_of(iterator: Any, *, of_any_size: bool) -> Any:
    """Shapes and types of a batch; `None` where they are not known.

    The size is a replica's, which a model that was built for the global batch need not take.
    """

    def part(leaf: Any) -> Any:
        one = getattr(leaf, "_value_specs", [leaf])[0]
        if of_any_size and isinstance(one, tf.TensorSpec) and one.shape.rank:
            return tf.TensorSpec([None, *one.shape[1:]], one.dtype)
        return one

    spec = keras.tree.map_structure(part, iterator._distributed_dataset.element_spec)
    known = all(
        isinstance(leaf, tf.TensorSpec | tf.SparseTensorSpec)
        and leaf.shape.rank is not None
        and leaf.shape[1:].is_fully_defined()
        for leaf in keras.tree.flatten(spec)
    )
    return spec if known else None
