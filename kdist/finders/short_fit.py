"""A user's functions, by name or from Python, and their model trained for a few steps."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..user_model.data import UserData
from ..user_model.functions import UserFunctions, load_functions

if TYPE_CHECKING:
    import keras

    from ..distribute.mirrored_strategy import MirroredStrategy

Function = str | Callable[..., Any]
"""A function, or `"FILE.py:FUNCTION"`."""


def as_functions(build: Function, data: Any) -> UserFunctions:
    """Return the functions that make a model and its data.

    Args:
        build: A function that returns a compiled model, or `"FILE.py:FUNCTION"`.
        data: A function that returns the data, or its name in the module of `build`; for a `build`
            from a file also `"FILE.py:FUNCTION"`.

    Raises:
        UserError: One is neither, or the file has no such function.
    """
    if isinstance(build, str):
        name = data if isinstance(data, str) else f"{file_of(data)}:{_name(data)}"
        return load_functions(build, name)
    if not callable(build):
        raise UserError(
            f"build has to be a function that returns a compiled model, or 'FILE.py:FUNCTION',"
            f" received {type(build).__name__}"
        )
    if isinstance(data, str):
        data = getattr(inspect.getmodule(build), data, data)
    if not callable(data):
        shown = repr(data) if isinstance(data, str) else type(data).__name__
        raise UserError(
            "data has to be a function that returns (x, y), (x_val, y_val) or a tf.data.Dataset,"
            f" or the name of one beside build, received {shown}: write data=lambda: ..."
        )
    return UserFunctions(
        files=tuple(dict.fromkeys([file_of(build), file_of(data)])),
        build=build,
        make_data=data,
        build_name=_name(build),
        data_name=_name(data),
    )


def file_of(function: Any) -> str:
    """Return the file of a function, by which errors in it are named; `"<unknown>"` of others."""
    try:
        return inspect.getsourcefile(function) or "<unknown>"
    except TypeError:  # an object that can be called, or one written in C
        return "<unknown>"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def build_model(functions: UserFunctions, strategy: "MirroredStrategy") -> "keras.Model":
    """Make the user's model under a strategy, with a step per execution.

    Raises:
        UserError: The function fails, or returns no compiled model.
    """
    from ..user_model.compiled_model import checked_model

    model = checked_model(strategy.build(functions.make_model), function="build")
    strategy.model_state(model).chosen_steps = None
    model.steps_per_execution = 1
    return model


def fit_steps(
    model: "keras.Model",
    data: UserData,
    *,
    global_batch: int,
    steps: int,
    callbacks: Sequence[Any] = (),
) -> None:
    """Train for a number of steps, over as many epochs as it takes.

    Args:
        model: A compiled model.
        data: Only the training data are used. Those with batches of their own keep them.
        global_batch: Samples per step over all replicas, for arrays.
        steps: How many.
        callbacks: Further ones; one may end the training sooner.
    """
    import keras

    done = 0

    class StopAfter(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            nonlocal done
            done += 1
            if done >= steps:
                self.model.stop_training = True

    arguments = UserData(training=data.training).fit_arguments(batch=global_batch)
    with warnings.catch_warnings():
        # Keras says so where it does not know the number of batches, after the first epoch.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        model.fit(**arguments, epochs=steps, verbose=0, callbacks=[*callbacks, StopAfter()])
