"""Find the size and shapes of batches before the first batch is read."""

from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from .fit_data import fit_data_of


def global_batch_of(iterator: Any, data_batch: Any) -> int | None:
    """Return the number of samples per full batch; `None` if unknown."""
    if iterator is None:
        return int(keras.tree.flatten(data_batch)[0].shape[0])
    if isinstance(iterator.data_adapter, ArrayDataAdapter):
        return int(iterator.data_adapter.batch_size)
    peeked = getattr(iterator.data_adapter, "_first_batches", None)  # of a generator
    if peeked:
        return int(keras.tree.flatten(peeked[0])[0].shape[0])
    dataset = getattr(iterator.data_adapter, "_dataset", None)
    return batch_size_of(dataset) if isinstance(dataset, tf.data.Dataset) else None


def batch_size_of(dataset: tf.data.Dataset) -> int | None:
    """Return the argument of `batch`; `element_spec` has it only with `drop_remainder=True`."""
    data = fit_data_of(dataset)
    if data is not None:
        return data.batch_size
    if hasattr(dataset, "_batch_size"):
        return int(dataset._batch_size)
    kind = type(dataset).__name__.removeprefix("_").removesuffix("Dataset")
    if kind not in _KEEP_BATCHES:
        return None
    # A dataset of scalars that is zipped with the batches, such as seeds, has no batch size.
    sources = [s for s in dataset._inputs() if kind != "Zip" or not _has_scalars_only(s)]
    sizes = {batch_size_of(source) for source in sources}
    return sizes.pop() if len(sizes) == 1 else None


def samples_of(dataset: tf.data.Dataset) -> int | None:
    """Return how many samples the batches of a dataset have in all; `None` if it is unknown."""
    if hasattr(dataset, "_batch_size"):
        size, (rows,) = int(dataset._batch_size), dataset._inputs()
        samples = int(rows.cardinality())
        if samples < 0:
            return None
        return samples // size * size if bool(dataset._drop_remainder) else samples
    kind = type(dataset).__name__.removeprefix("_").removesuffix("Dataset")
    return samples_of(dataset._inputs()[0]) if kind in _KEEP_SAMPLES else None


def _has_scalars_only(dataset: tf.data.Dataset) -> bool:
    shapes = (getattr(leaf, "shape", None) for leaf in keras.tree.flatten(dataset.element_spec))
    return all(shape is not None and shape.rank == 0 for shape in shapes)


_KEEP_BATCHES = (
    *("AssertCardinality", "Cache", "Map", "Options", "ParallelMap", "Prefetch"),
    *("Repeat", "Shuffle", "Skip", "Take", "Zip"),
)

_KEEP_SAMPLES = ("Cache", "Map", "Options", "ParallelMap", "Prefetch", "Shuffle")


def batch_spec_of(iterator: Any, *, any_batch_size: bool) -> Any:
    """Return the shapes and types of a replica's batch; `None` if they are unknown.

    Args:
        iterator: Keras's `EpochIterator`.
        any_batch_size: Whether to make the batch size unknown. A model that was built for the
            global batch may reject that of a replica.
    """

    def part(leaf: Any) -> Any:
        one = getattr(leaf, "_value_specs", [leaf])[0]
        if any_batch_size and isinstance(one, tf.TensorSpec) and one.shape.rank:
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
