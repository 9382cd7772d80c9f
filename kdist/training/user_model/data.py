"""`UserData`: the data that a user's function returns, checked."""

import dataclasses
import inspect
from typing import Any

from ...errors import UserError

# TensorFlow and Keras are imported inside the functions, as in `kdist.training.run`.

ARRAYS = ("x", "y", "sample_weight")
"""Arguments of `fit` that are arrays."""

_LOADERS = ("torch", "grain")  # packages whose loaders Keras takes


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

        Example:
            >>> UserData(training=([1.0], [2.0])).fit_arguments(batch=32)
            {'x': [1.0], 'y': [2.0], 'batch_size': 32}
        """
        arguments: dict[str, Any] = {"x": self.training}
        if self.has_arrays:
            arguments = dict(zip(ARRAYS, self.training, strict=False))
            arguments["batch_size"] = batch
        elif not _can_be_shuffled(self.training):
            arguments["shuffle"] = False  # Keras warns of its own default otherwise
        if self.validation is not None:
            arguments["validation_data"] = self.validation
            if isinstance(self.validation, tuple) and validation_batch is not None:
                arguments["validation_batch_size"] = validation_batch
        return arguments

    def own_batch(self) -> int | None:
        """Return the size of a full training batch; `None` for arrays, or if unknown.

        For a `tf.data.Dataset` whose size TensorFlow knows, no batch is read.
        """
        return None if self.has_arrays else _batch_size(self.training)

    def first_batch(self) -> int:
        """Return the size of the first training batch; the batch is read if its size is unknown."""
        import keras

        known = self.own_batch()
        if known is not None:
            return known
        return len(keras.tree.flatten(next(iter(self.training)))[0])

    def samples(self) -> int | None:
        """Return the number of training samples; `None` if unknown."""
        import keras

        if self.training is None:
            return None
        if self.has_arrays:
            shapes = [getattr(leaf, "shape", None) for leaf in keras.tree.flatten(self.training)]
            return next((int(shape[0]) for shape in shapes if shape), None)
        return _samples(self.training)

    def count(self) -> int:
        """Return the number of training samples by reading all batches."""
        import keras

        return sum(len(keras.tree.flatten(batch)[0]) for batch in self.training)


def checked_data(data: Any) -> UserData:
    """Check the result of a data function.

    Args:
        data: Training and validation data, or training data alone. A pair is `(x, y), (x_val,
            y_val)`, optionally with sample weights, or two objects that Keras takes in batches; the
            validation data may be `None`. Training data alone are `(x, y)`, `(x, y,
            sample_weight)`, `x`, or batches. A pair of pairs is training and validation.

    Raises:
        UserError: The data have a different form.
    """
    import keras

    if isinstance(data, UserData):
        return data
    if any(hasattr(one, "to_tf_dataset") for one in keras.tree.flatten(data)):  # with a shape, too
        raise UserError(
            "the data function returned datasets of Hugging Face: of those for training and"
            ' validation, return to_tf_dataset(columns="x", label_cols="y", batch_size=...), with'
            " the names of your columns"
        )
    training, validation = _parts(data)
    for part, name in ((training, "(x, y)"), (validation, "(x_val, y_val)")):
        if isinstance(part, tuple):
            _check_samples(part, name)
        elif part is not None:
            _check_batches(part, "training" if part is training else "validation")
    return UserData(training=training, validation=validation)


def first_samples(arrays: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """Return the first samples of (x, y) or (x, y, sample_weight), where y may be `None`."""
    import keras

    def first(array: Any) -> Any:
        return None if array is None else array[:count]

    return tuple(keras.tree.map_structure(first, array) for array in arrays)


_NEITHER = object()


def _parts(data: Any) -> tuple[Any, Any]:
    """Return training and validation data in the form of `UserData`."""
    if _is_batched(data):
        return data, None
    if isinstance(data, tuple | list) and len(data) == 2:
        training, validation = map(_part, data)
        if training is not None and not any(p is _NEITHER for p in (training, validation)):
            return training, validation
    if _is_array(data):
        return (data, None), None
    if isinstance(data, tuple) and len(data) in (1, 2, 3) and _is_arrays(data):
        return (data if len(data) > 1 else (*data, None)), None
    raise _unexpected(data)


def _is_arrays(data: tuple[Any, ...]) -> bool:
    """Whether data are `(x,)`, `(x, y)` or `(x, y, sample_weight)`, not three tuples or lists."""
    are_pairs = len(data) > 2 and all(isinstance(part, tuple | list) for part in data)
    others = [part for part in data[1:] if part is not None]
    return not are_pairs and all(map(_has_arrays, (data[0], *others)))


def _is_array(data: Any) -> bool:
    """Whether data are `x` alone: an array, or a dictionary of arrays."""
    return (isinstance(data, dict) or hasattr(data, "shape")) and _has_arrays(data)


def _has_arrays(data: Any) -> bool:
    import keras

    leaves = keras.tree.flatten(data)
    return bool(leaves) and all(getattr(leaf, "shape", ()) for leaf in leaves)


def _part(part: Any) -> Any:
    if part is None or _is_batched(part):
        return part
    if isinstance(part, tuple | list) and len(part) in (2, 3):
        return tuple(part)
    return _NEITHER


def _unexpected(data: Any) -> UserError:
    if any(map(inspect.isgenerator, data if isinstance(data, tuple | list) else [data])):
        return UserError(
            "the data function returned a generator, which is empty after one epoch: return a"
            " tf.data.Dataset, such as tf.data.Dataset.from_generator(...), or a"
            " keras.utils.PyDataset"
        )
    return UserError(
        f"the data function returned {type(data).__name__}, expected (x, y), (x_val, y_val), or"
        " arrays (x, y) alone, or training and validation data as tf.data.Dataset or"
        " keras.utils.PyDataset"
    )


def _is_batched(data: Any) -> bool:
    import keras
    import tensorflow as tf

    if isinstance(data, tf.data.Dataset | keras.utils.PyDataset):
        return True
    modules = {kind.__module__.partition(".")[0] for kind in type(data).__mro__}
    return bool(modules.intersection(_LOADERS)) and not hasattr(data, "shape")


def _can_be_shuffled(data: Any) -> bool:
    """Whether Keras shuffles the order of the batches."""
    import keras

    return isinstance(data, keras.utils.PyDataset) and data.num_batches is not None


def _check_batches(data: Any, name: str) -> None:
    import tensorflow as tf

    if not isinstance(data, tf.data.Dataset):
        return
    cardinality = int(data.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise UserError(
            f"the {name} data repeat without end, so an epoch would never be over: remove"
            " .repeat(), as they are read once per epoch"
        )
    if cardinality == 0:
        raise NoSamplesError(f"the data function returned {name} data without samples: return some")


def _samples(data: Any) -> int | None:
    import keras
    import tensorflow as tf

    from ..._upstream.fit_data import samples_of

    if isinstance(data, tf.data.Dataset):
        known: int | None = samples_of(data)
        return known
    if isinstance(data, keras.utils.PyDataset) and data.num_batches is not None:
        last = data[data.num_batches - 1]  # perhaps smaller
        full = (_batch_size(data) or 0) * (data.num_batches - 1)
        return int(full + len(keras.tree.flatten(last)[0]))
    return None


def _batch_size(data: Any) -> int | None:
    import keras
    import tensorflow as tf

    from ..._upstream.fit_data import batch_size_of

    if isinstance(data, tf.data.Dataset):
        known = batch_size_of(data)
        leaves = keras.tree.flatten(data.element_spec)
        shapes = [leaf.shape for leaf in leaves if getattr(leaf, "shape", None) is not None]
        static = shapes[0][0] if shapes and shapes[0].rank else None
        return known or static
    if isinstance(data, keras.utils.PyDataset):
        return len(keras.tree.flatten(data[0])[0])
    size = getattr(data, "batch_size", None)  # of a DataLoader
    return size if isinstance(size, int) else None


def _check_samples(arrays: Any, name: str) -> None:
    import keras

    shapes = [getattr(array, "shape", None) for array in keras.tree.flatten(arrays)]
    counts = {int(shape[0]): None for shape in shapes if shape and shape[0] is not None}
    if len(counts) > 1:
        numbers = " and ".join(map(str, counts))
        raise UserError(
            f"the data function returned {name} with {numbers} samples: return as many of each"
        )
    if 0 in counts:
        raise NoSamplesError(f"the data function returned {name} without samples: return some")
