"""`Batches`: the same samples for every training, taken once from the user's data."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..errors import UserError
from ..user_model.functions import has_parameter
from .arrays import as_array, floats_in, joined_arrays, samples_in, shape_of_sample
from .options import CheckOptions

_LEAST_BATCH = 8
# Numbers of replicas whose common multiple is larger get a batch that is uneven from the first on.
_MOST_BATCH = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batches:
    """Samples of a few batches, the last of an epoch smaller where the data allow it.

    Attributes:
        arrays: What a batch consists of, as `fit` passes it to a step: `x`, `(x, y)` or
            `(x, y, sample_weight)`, or what the data themselves give; all samples along the first
            axes.
        samples: Their number.
        batch_size: Samples per global batch.
        is_fixed: Whether every batch has this size, so that none is smaller.
    """

    arrays: Any
    samples: int
    batch_size: int
    is_fixed: bool = False

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-self.samples // self.batch_size)

    @property
    def last(self) -> int:
        """Samples of the last batch of an epoch."""
        return self.samples - (self.steps - 1) * self.batch_size

    def dataset(self) -> tf.data.Dataset:
        """The batches of an epoch, in order."""
        rows = tf.data.Dataset.from_tensor_slices(self.arrays)
        return rows.batch(self.batch_size, drop_remainder=self.is_fixed)

    def inputs(self) -> tf.data.Dataset:
        """The batches without targets, for `predict`."""
        x, _, _ = keras.utils.unpack_x_y_sample_weight(self.arrays)
        rows = tf.data.Dataset.from_tensor_slices((x,))
        return rows.batch(self.batch_size, drop_remainder=self.is_fixed)

    def rows(self, start: int, stop: int) -> Any:
        """Some of the samples, as one batch of tensors."""
        return keras.tree.map_structure(lambda array: _tensor(array[start:stop]), self.arrays)

    def in_float64(self) -> "Batches":
        """The same samples, their floats in float64."""
        wide = keras.tree.map_structure(lambda a: floats_in(a, "float64"), self.arrays)
        return dataclasses.replace(self, arrays=wide)


def _tensor(array: Any) -> Any:
    return array if isinstance(array, tf.RaggedTensor) else tf.convert_to_tensor(array)


def batches_of(data: Any, options: CheckOptions) -> Batches:
    """Take the samples of a few steps from training data.

    Args:
        data: The training data of `UserData`: arrays in a tuple, or what gives batches.
        options: How many steps, and how large the batches of arrays are.

    Raises:
        UserError: There are too few samples, or they are no arrays.
    """
    if not isinstance(data, tuple):
        arrays, size, fixed = _joined(data, options.steps_per_epoch)
        if options.batch_size not in (None, size):
            raise UserError(
                f"received batch_size={options.batch_size}, but the data have batches of their own,"
                f" of {size} samples: remove it, or write def data(batch_size):"
            )
    else:
        arrays, size, fixed = _as_passed(_as_arrays(data)), 0, False
    samples = _count(arrays)
    size = size or options.batch_size or _chosen_size(options.replicas)
    size = min(size, max(1, samples // 2))
    wanted = options.steps_per_epoch * size
    if not fixed:
        wanted -= size - (size // 2 + 1)  # the last batch: not half, and divisible by few
    if samples < 2:
        raise UserError(f"the data have {samples} sample: check needs at least 2")
    used = min(samples, wanted)
    if not fixed and used % size == 0 and size > 1:
        used -= size - (size // 2 + 1)
    return Batches(
        arrays=keras.tree.map_structure(lambda array: array[:used], arrays),
        samples=used,
        batch_size=size,
        is_fixed=fixed,
    )


def first_batches(data: Any, count: int) -> list[Any]:
    """Return the first batches of data that give batches, in NumPy arrays."""
    if isinstance(data, keras.utils.PyDataset):
        source: Iterable[Any] = (data[index] for index in range(min(count, _length(data, count))))
    else:
        source = data
    found = []
    for batch in source:
        # `fit` packs the arrays of a `PyDataset` into tuples, and leaves what other data give.
        is_alone = isinstance(data, keras.utils.PyDataset) and hasattr(batch, "shape")
        found.append(_as_arrays((batch,) if is_alone else batch))
        if len(found) == count:
            break
    return found


def _length(data: keras.utils.PyDataset, count: int) -> int:
    length = data.num_batches
    return count if length is None else int(length)


def _joined(data: Any, count: int) -> tuple[Any, int, bool]:
    found = first_batches(data, count)
    if not found:
        raise UserError("the data gave no batch: return some")
    shapes = [_sample_shapes(batch) for batch in found]
    alike = [batch for batch, shape in zip(found, shapes, strict=True) if shape == shapes[0]]
    arrays = keras.tree.map_structure(joined_arrays, *alike)
    fixed = False
    if isinstance(data, tf.data.Dataset):
        spec = keras.tree.flatten(data.element_spec)
        fixed = all(one.shape.rank and one.shape[0] is not None for one in spec)
    return arrays, _count(found[0]), fixed


def _sample_shapes(batch: Any) -> Sequence[Any]:
    return [shape_of_sample(leaf) for leaf in keras.tree.flatten(batch)]


def _as_arrays(data: Any) -> Any:
    data = tuple(data) if isinstance(data, list) and _is_batch(data) else data
    if isinstance(data, tuple):
        data = tuple(part for part in data if part is not None)
    # As Keras does: TensorFlow would stack the arrays of a list.
    return keras.tree.lists_to_tuples(keras.tree.map_structure(as_array, data))


def _as_passed(arrays: Any) -> Any:
    """Arrays as `fit` passes them on: in Keras's floats, and one alone without a tuple around."""
    arrays = keras.tree.map_structure(lambda a: floats_in(a, keras.config.floatx()), arrays)
    is_alone = isinstance(arrays, tuple) and len(arrays) == 1
    return arrays[0] if is_alone and not isinstance(arrays[0], tuple) else arrays


def _is_batch(data: list[Any]) -> bool:
    return all(hasattr(part, "shape") or isinstance(part, (dict, tuple)) for part in data)


def _count(arrays: Any) -> int:
    counts = {samples_in(leaf) for leaf in keras.tree.flatten(arrays)}
    if len(counts) != 1:
        numbers = " and ".join(map(str, sorted(counts)))
        raise UserError(
            f"the data have arrays with {numbers or 'no'} samples: pass as many of each"
        )
    return counts.pop()


def _chosen_size(replicas: Sequence[int]) -> int:
    """Choose a batch that can be divided by the numbers of replicas, but for the last one."""
    step = math.lcm(*replicas)
    if step > _MOST_BATCH:
        step = max(replicas)
    return step * -(-_LEAST_BATCH // step)


def call_data(data: Any, batch_size: int) -> Any:
    """Return the data that a function makes, or those that were passed.

    Args:
        data: A function, which may take a `batch_size`; or data.
        batch_size: For it.
    """
    if not callable(data) or isinstance(data, tf.data.Dataset | keras.utils.PyDataset):
        return data
    function: Callable[..., Any] = data
    takes_batch = has_parameter(function, "batch_size")
    return function(batch_size=batch_size) if takes_batch else function()
