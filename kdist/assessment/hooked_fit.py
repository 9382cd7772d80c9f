"""`keras.Model.fit` with one more callback, or with its learning rates alone."""

import contextlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from .facts import Facts
from .observer import Observer
from .planned_rates import rehearse, schedule_peak

# Where nothing says how many steps an epoch has: enough for any warm-up.
_UNKNOWN_STEPS = 1000
_KERAS_BATCH = 32
_WRITERS = ("save", "save_weights", "export")


class Enough(BaseException):
    """Ends a program of which all is known."""


class _End:
    """Ends the program at the first call; the process at the next, as it has caught the first."""

    def __init__(self) -> None:
        self._was_called = False

    def __call__(self) -> None:
        if not self._was_called:
            self._was_called = True
            raise Enough
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed, or replaced by the program
                stream.flush()
        os._exit(0)  # what is known is written


def observed_fit(observer: Observer) -> contextlib.AbstractContextManager[None]:
    """Give every fit a callback; a fit after the assessment is decided ends the program.

    Args:
        observer: The callback.
    """
    signature, end = inspect.signature(keras.Model.fit), _End()

    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        given = _arguments(signature, model, args, kwargs)
        if observer.is_decided:
            end()
        observer.begin(model, schedule_peak(model, steps_per_epoch(given) * given["epochs"]))
        if isinstance(given["callbacks"], keras.callbacks.CallbackList):
            observer.set_model(model)  # which `fit` leaves to the list
            observer.set_params({"epochs": given["epochs"]})
            given["callbacks"].callbacks.append(observer)
        else:
            given["callbacks"] = [*_callbacks(given["callbacks"]), observer]
        del given["self"]
        return super(keras.Model, model).fit(**given)

    def evaluate(model: Any, *args: Any, **kwargs: Any) -> Any:
        observer.watch(model)  # a step that is traced before `fit` is not traced again
        return super(keras.Model, model).evaluate(*args, **kwargs)

    return _methods(fit=fit, evaluate=evaluate)


def rehearsed_fit(
    path: Path, *, fits: int, values: Mapping[str, float]
) -> contextlib.AbstractContextManager[None]:
    """Take only the learning rates of each fit, and end the program after the last one.

    Models are not saved either: the files that the program has saved are those of its training.

    Args:
        path: File for the rates.
        fits: Number of fits until the program is ended.
        values: What a fit says that it has logged in each epoch.
    """
    signature, end = inspect.signature(keras.Model.fit), _End()
    rates: list[tuple[int, float]] = []
    done = 0

    def fit(model: Any, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        nonlocal done
        if done >= fits:  # after the last one
            end()
        given = _arguments(signature, model, args, kwargs)
        begin = rates[-1][0] + 1 if rates else 0
        epochs = range(given["initial_epoch"], given["epochs"])
        planned = rehearse(
            model, _callbacks(given["callbacks"]), epochs=epochs, steps=steps_per_epoch(given)
        )
        rates.extend((begin + step, rate) for step, rate in planned)
        Facts(rates=rates).write(path)
        done += 1
        if done >= fits:
            end()
        history = keras.callbacks.History()
        history.set_model(model)
        history.epoch = [*epochs]
        history.history = {name: [value] * len(epochs) for name, value in values.items()}
        return history

    def write_nothing(model: Any, *args: Any, **kwargs: Any) -> None:
        del model, args, kwargs

    return _methods(fit=fit, **dict.fromkeys(_WRITERS, write_nothing))


def _arguments(signature: inspect.Signature, model: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(model, *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


@contextlib.contextmanager
def _methods(**methods: Callable[..., Any]) -> Iterator[None]:
    """Replace methods of `keras.Model`, of which some are those of its parent classes."""
    own = {name: vars(keras.Model)[name] for name in methods if name in vars(keras.Model)}
    for name, method in methods.items():
        setattr(keras.Model, name, method)
    try:
        yield
    finally:
        for name in methods:
            if name in own:
                setattr(keras.Model, name, own[name])
            else:
                delattr(keras.Model, name)


def _callbacks(given: Any) -> list[Any]:
    if given is None:
        return []
    if hasattr(given, "callbacks"):  # a list of Keras's own kind
        return [*given.callbacks]
    return [*given] if isinstance(given, list | tuple) else [given]


def steps_per_epoch(given: Mapping[str, Any]) -> int:
    """Return the steps of an epoch; a large number where the arguments of a fit do not say.

    Args:
        given: All arguments of `fit`, by name.
    """
    if given["steps_per_epoch"]:
        return int(given["steps_per_epoch"])
    x = given["x"]
    arrays = keras.tree.flatten(x) if isinstance(x, dict | list | tuple) else [x]
    if isinstance(x, keras.utils.PyDataset):
        return x.num_batches or _UNKNOWN_STEPS
    if isinstance(x, tf.data.Dataset):
        number = int(x.cardinality())
        return number if number > 0 else _UNKNOWN_STEPS
    if arrays and hasattr(arrays[0], "shape"):
        rows = int(len(arrays[0]) * (1 - (given["validation_split"] or 0)))
        return max(1, -(-rows // (given["batch_size"] or _KERAS_BATCH)))
    try:
        return max(1, len(x))
    except TypeError:
        return _UNKNOWN_STEPS
