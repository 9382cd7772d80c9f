"""`Batches`: the batches of a check, equal in all training runs, with a smaller last batch."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import UserError
from ...training.user_model.user_data import UserData


@dataclasses.dataclass(frozen=True)
class Batches:
    """The first batches of training data, as tensors.

    Each part has the form that a step receives: `x`, `(x, y)` and so on.
    """

    parts: Sequence[Any]

    @property
    def sizes(self) -> list[int]:
        """The number of samples of each batch."""
        return [count_rows(batch) for batch in self.parts]

    def to_dataset(self) -> tf.data.Dataset:
        """Return the batches as a dataset."""
        return _concatenate(self.parts)

    def inputs_to_dataset(self) -> tf.data.Dataset:
        """Return the batches without targets, for `predict`."""
        return _concatenate(
            [(keras.utils.unpack_x_y_sample_weight(batch)[0],) for batch in self.parts]
        )

    def to_float64(self) -> "Batches":
        """Return the same batches with floats in float64."""
        return Batches([keras.tree.map_structure(_cast_to_float64, batch) for batch in self.parts])

    def shorten_last(self) -> "Batches":
        """Return the batches with a smaller last batch: half of its samples, and one more."""
        *parts, last = self.parts
        rows = count_rows(last)
        shorter = keras.tree.map_structure(lambda leaf: leaf[: rows // 2 + 1], last)
        return Batches([*parts, shorter]) if rows > 1 else self


def read_batches(data: UserData, count: int, batch_size: int) -> Batches:
    """Return the first batches, with an uneven last batch if the data allow it."""
    training = data.training
    if data.has_arrays:
        arrays = tuple(part for part in training if part is not None)
        arrays = keras.tree.lists_to_tuples(keras.tree.map_structure(convert_like_fit, arrays))
        rows = count_rows(arrays)
        size = min(batch_size, max(1, rows // 2))
        starts = range(0, min(rows, count * size), size)
        parts = [
            keras.tree.map_structure(lambda leaf, start=start: leaf[start : start + size], arrays)
            for start in starts
        ]
        if len(arrays) == 1 and not isinstance(arrays[0], tuple):
            parts = [part for (part,) in parts]  # as `fit` passes a single array to a step
        is_flexible = True
    else:
        parts = [
            keras.tree.lists_to_tuples(keras.tree.map_structure(_as_tensor, batch))
            for batch in itertools.islice(iterate_batches(training), count)
        ]
        is_flexible = not _has_fixed_size(training) and not any(
            isinstance(leaf, tf.SparseTensor) for leaf in keras.tree.flatten(parts)
        )
    if not parts or sum(map(count_rows, parts)) < 2:
        raise UserError(
            "the data have fewer than 2 samples, too few for a check: return at least 2"
        )
    batches = Batches(parts)
    return batches.shorten_last() if is_flexible else batches


def count_rows(batch: Any) -> int:
    """Return the number of samples in a batch."""
    leaf = keras.tree.flatten(batch)[0]
    if isinstance(leaf, tf.RaggedTensor):
        return int(leaf.nrows())
    return int(leaf.shape[0])


def _concatenate(parts: Sequence[Any]) -> tf.data.Dataset:
    datasets = [tf.data.Dataset.from_tensors(part) for part in parts]
    return functools.reduce(tf.data.Dataset.concatenate, datasets)


def iterate_batches(data: Any) -> Iterator[Any]:
    """Yield the batches of data that are not arrays."""
    if not isinstance(data, keras.utils.PyDataset):
        iterable: Iterable[Any] = data
        yield from iterable
        return
    indices = itertools.count() if data.num_batches is None else range(data.num_batches)
    for index in indices:
        batch = data[index]
        yield batch if isinstance(batch, tuple | list) else (batch,)  # as `fit` packs it


def _has_fixed_size(data: Any) -> bool:
    if not isinstance(data, tf.data.Dataset):
        return False
    specs = keras.tree.flatten(data.element_spec)
    return all(spec.shape.rank and spec.shape[0] is not None for spec in specs)


def _as_tensor(leaf: Any) -> Any:
    is_composite = isinstance(leaf, tf.RaggedTensor | tf.SparseTensor)
    tensor = leaf if is_composite else tf.convert_to_tensor(_as_array(leaf))
    if tensor.shape.rank == 0:
        raise UserError("the dataset gives single samples: add .batch(8), as fit expects batches")
    return tensor


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, tf.Tensor):
        return leaf
    array = np.asarray(leaf)
    if array.dtype == object and not all(isinstance(item, str | bytes) for item in array.flat):
        raise UserError(
            f"the data have a {type(leaf).__name__} that is no array of samples: check takes arrays"
            " and tensors with the samples along the first axis"
        )
    return array


def convert_like_fit(leaf: Any) -> Any:
    """Return an array in the form that `fit` passes to a step."""
    tensor = _as_tensor(leaf)
    return tf.cast(tensor, keras.config.floatx()) if tensor.dtype.is_floating else tensor


def _cast_to_float64(leaf: Any) -> Any:
    return tf.cast(leaf, "float64") if leaf.dtype.is_floating else leaf
