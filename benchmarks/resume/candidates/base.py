"""`Candidate`: one way to save and resume a training."""

import abc
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

ARRAYS = {f"array-{i}": (512, 256) for i in range(8)}  # 4 MB


class WrongValuesError(Exception):
    """What was restored without an error is not what was saved."""


class Values(abc.ABC):
    """Arrays of 4 MB that are saved and restored.

    Args:
        folder: Where they are saved.
    """

    @abc.abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abc.abstractmethod
    def save(self, number: int) -> None:
        """Save the arrays of a number, larger than those before; wait for the disk."""

    @abc.abstractmethod
    def restore(self) -> dict[str, np.ndarray] | None:
        """Return the newest arrays; `None` if there is nothing that was saved."""

    @abc.abstractmethod
    def strays(self) -> list[str]:
        """Names of files that belong to no checkpoint."""

    @staticmethod
    def newest(folder: Path) -> list[Path]:
        """The files of the newest checkpoint, and those that point to it."""
        raise NotImplementedError


class Candidate(abc.ABC):
    """One way to save and resume a training.

    Attributes:
        title: Its name in the table.
        module: What it needs besides kdist's dependencies.
        values: Its `Values`.
    """

    title: ClassVar[str]
    module: ClassVar[str] = ""
    values: ClassVar[type[Values]]

    @property
    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        try:
            return not self.module or importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:  # its package
            return False

    @abc.abstractmethod
    def callback(self, folder: Path, model: Any) -> tuple[Any, int]:
        """Return the callback that saves and resumes a training, and its `initial_epoch`."""

    def saves(self, folder: Path, model: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return what saves a model in training, and what waits until that is on the disk."""
        raise NotImplementedError


def filled(number: int) -> dict[str, np.ndarray]:
    """The arrays of a number: noise, as weights are, that begins with the number."""
    random = np.random.default_rng(number)
    arrays = {n: random.standard_normal(shape, "float32") for n, shape in ARRAYS.items()}
    arrays["array-0"][0, 0] = number
    return arrays


def number_of(arrays: dict[str, np.ndarray] | None) -> int | None:
    """Return the number of arrays that were restored; `None` without arrays.

    Raises:
        WrongValuesError: They are not those that were saved together.
    """
    if arrays is None:
        return None
    number = float(arrays["array-0"][0, 0])
    if number.is_integer() and number > 0:
        expected = filled(int(number))
        if all(np.array_equal(arrays[name], expected[name]) for name in ARRAYS):
            return int(number)
    raise WrongValuesError("wrong values")


def keras_model() -> Any:
    """A model whose weights are the arrays."""
    import keras

    inputs = keras.Input((512,))
    outputs = [keras.layers.Dense(256, use_bias=False, name=name)(inputs) for name in ARRAYS]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """The arrays of `keras_model`."""
    return {name: model.get_layer(name).kernel.numpy() for name in ARRAYS}


def set_weights(model: Any, number: int) -> None:
    """Fill the arrays of `keras_model`."""
    for name, array in filled(number).items():
        model.get_layer(name).kernel.assign(array)
