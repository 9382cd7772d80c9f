"""`UserData`: holds and checks the data that a user's function returns."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from ..._upstream.running_fits import count_samples, find_batch_size
from ...errors import UserError

_FIT_ARGUMENTS = ("x", "y", "sample_weight")
_LOADER_PACKAGES = ("torch", "grain")  # with loaders that Keras takes


class NoSamplesError(UserError):
    """The data function has returned data without samples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserData:
    """Training and validation data.

    Attributes:
        training: Arrays (x, y) or (x, y, sample_weight), or batches that Keras takes: a
            `tf.data.Dataset`, a `keras.utils.PyDataset`, a PyTorch `DataLoader`.
        validation: Data of the same kinds; `None` without validation.
    """

    training: Any
    validation: Any = None

    @property
    def has_arrays(self) -> bool:
        """Whether the training data are arrays, so that kdist makes the batches."""
        return isinstance(self.training, tuple)

    def fit_arguments(
        self, *, batch: int | None, validation_batch: int | None = None
    ) -> dict[str, Any]:
        """Return the arguments of `model.fit` that concern the data.

        Args:
            batch: Training samples per step over all replicas. Unused if the data are batches.
            validation_batch: Validation samples per step over all replicas; by default the
                value of `batch`.

        Examples:
            >>> UserData(training=([1.0], [2.0])).fit_arguments(batch=32)
            {'x': [1.0], 'y': [2.0], 'batch_size': 32}
        """
        arguments: dict[str, Any] = {"x": self.training}
        if self.has_arrays:
            arguments = dict(zip(_FIT_ARGUMENTS, self.training, strict=False))
            arguments["batch_size"] = batch
        elif not isinstance(self.training, keras.utils.PyDataset) or not self.training.num_batches:
            arguments["shuffle"] = False  # Keras cannot shuffle batches, and would warn
        if self.validation is not None:
            arguments["validation_data"] = self.validation
            if isinstance(self.validation, tuple) and validation_batch is not None:
                arguments["validation_batch_size"] = validation_batch
        return arguments

    def known_batch_size(self) -> int | None:
        """Return the size of a full training batch; `None` for arrays, or if unknown.

        For a `tf.data.Dataset` whose size TensorFlow knows, no batch is read.
        """
        data = self.training
        if isinstance(data, tf.data.Dataset):
            known: int | None = find_batch_size(data)
            shape = getattr(keras.tree.flatten(data.element_spec)[0], "shape", None)
            return known or (shape[0] if shape is not None and shape.rank else None)
        if isinstance(data, keras.utils.PyDataset):
            return _count_rows(data[0])
        size = getattr(data, "batch_size", None)  # of a DataLoader
        return size if isinstance(size, int) else None

    def first_batch(self) -> int:
        """Return the size of the first training batch; the batch is read if its size is unknown."""
        return self.known_batch_size() or _count_rows(next(iter(self.training)))

    def known_samples(self) -> int | None:
        """Return the number of training samples; `None` if unknown."""
        data = self.training
        if self.has_arrays:
            shapes = [getattr(leaf, "shape", None) for leaf in keras.tree.flatten(data)]
            return next((int(shape[0]) for shape in shapes if shape), None)
        if isinstance(data, tf.data.Dataset):
            known: int | None = count_samples(data)
            return known
        if isinstance(data, keras.utils.PyDataset) and data.num_batches:
            last = data.num_batches - 1  # the last batch may be smaller
            return int(last) * _count_rows(data[0]) + _count_rows(data[last])
        return None

    def count_samples(self) -> int:
        """Return the number of training samples by reading all batches."""
        return sum(map(_count_rows, self.training))


def check_data_result(data: Any) -> UserData:
    """Check the result of a data function.

    Args:
        data: Training and validation data, or training data alone. A pair is `(x, y), (x_val,
            y_val)`, optionally with sample weights, or two objects that Keras takes in batches; the
            validation data may be `None`. Training data alone are `(x, y)`, `(x, y,
            sample_weight)`, `x`, or batches. A pair of pairs is training and validation.

    Raises:
        UserError: The data have a different form.
    """
    if any(hasattr(part, "to_tf_dataset") for part in keras.tree.flatten(data)):
        raise UserError(
            "the data function returned datasets of Hugging Face: return their"
            ' to_tf_dataset(columns="x", label_cols="y", batch_size=...)'
        )
    training, validation = _split_validation(data)
    for part, arrays, noun in (
        (training, "(x, y)", "training"),
        (validation, "(x_val, y_val)", "validation"),
    ):
        if isinstance(part, tuple):
            _check_samples(part, arrays)
        elif isinstance(part, tf.data.Dataset):
            _check_batches(part, noun)
    return UserData(training=training, validation=validation)


def take_first_samples(arrays: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return the first samples of (x, y) or (x, y, sample_weight), where y may be `None`."""
    return tuple(
        keras.tree.map_structure(lambda array: None if array is None else array[:count], part)
        for part in arrays
    )


def _count_rows(batch: Any) -> int:
    return len(keras.tree.flatten(batch)[0])


def _split_validation(data: Any) -> tuple[Any, Any]:
    """Return training and validation data in the form of `UserData`."""
    if _is_batched(data):
        return data, None
    if isinstance(data, tuple | list) and len(data) == 2:
        training, validation = data
        if _is_part(training) and (validation is None or _is_part(validation)):
            return _as_part(training), _as_part(validation)
    if (isinstance(data, dict) or hasattr(data, "shape")) and _has_arrays(data):
        return (data, None), None
    if isinstance(data, tuple) and len(data) in (1, 2, 3):
        are_pairs = len(data) > 2 and all(isinstance(part, tuple | list) for part in data)
        arrays = [data[0], *(part for part in data[1:] if part is not None)]
        if not are_pairs and all(map(_has_arrays, arrays)):
            return (data if len(data) > 1 else (*data, None)), None
    raise UserError(
        f"the data function returned {type(data).__name__}, expected arrays (x, y), a"
        " tf.data.Dataset or a keras.utils.PyDataset, or a pair of these: training and validation"
        " data"
    )


def _is_part(part: Any) -> bool:
    """Whether `part` can be one of a pair of training and validation data."""
    return _is_batched(part) or (isinstance(part, tuple | list) and len(part) in (2, 3))


def _as_part(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part


def _has_arrays(data: Any) -> bool:
    leaves = keras.tree.flatten(data)
    return bool(leaves) and all(getattr(leaf, "shape", ()) for leaf in leaves)


def _is_batched(data: Any) -> bool:
    if isinstance(data, tf.data.Dataset | keras.utils.PyDataset):
        return True
    modules = {kind.__module__.partition(".")[0] for kind in type(data).__mro__}
    return bool(modules.intersection(_LOADER_PACKAGES)) and not hasattr(data, "shape")


def _check_batches(data: tf.data.Dataset, noun: str) -> None:
    cardinality = int(data.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise UserError(
            f"the {noun} data repeat without end, so an epoch would never end: remove .repeat(), as"
            " the data are read once per epoch"
        )
    if cardinality == 0:
        raise NoSamplesError(
            f"the data function returned {noun} data without samples: return at least one batch"
        )


def _check_samples(arrays: Any, name: str) -> None:
    shapes = [getattr(array, "shape", None) for array in keras.tree.flatten(arrays)]
    counts = {int(shape[0]): None for shape in shapes if shape and shape[0] is not None}
    if len(counts) > 1:
        numbers = " and ".join(map(str, counts))
        raise UserError(
            f"the data function returned {name} with {numbers} samples: all arrays need the same"
            " number of samples"
        )
    if 0 in counts:
        raise NoSamplesError(
            f"the data function returned {name} without samples: return at least one sample"
        )
