"""`load_model`: opens a saved model in a strategy's scope.

The scope creates the model's variables: `spmd/variables.py`.
"""

import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from ..arguments import path_text
from ..errors import UserError

# These modules register their classes with Keras.
from ..layers import sync_batch_normalization  # noqa: F401
from ..optimizers import lars_and_novograd, warm_up  # noqa: F401
from .exact_strategy import ExactStrategy

_MISSING_CLASS = re.compile(r"Could not locate (?:function|class) '([^']+)'")
# Before its first step an optimizer has two variables: the count of steps and the learning rate.
# Nothing is lost if they are not loaded.
_NOT_LOADED = re.compile(
    r"Skipping variable loading for optimizer .* whereas the saved optimizer has (\d+) variables"
)
_VARIABLES_BEFORE_BUILD = 2


def load_model(
    path: str | os.PathLike[str],
    *,
    strategy: ExactStrategy | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,  # noqa: A002 - as keras.models.load_model
    safe_mode: bool = True,
) -> keras.Model:
    """Open a saved model in a strategy's scope, to be trained further on any number of replicas.

    The weights, the optimizer's state and the compile settings come from the file, which any number
    of replicas may have saved. The file lacks the state of random draws, such as dropout's;
    `Checkpoint` saves this state, too.

    Args:
        path: A path for `keras.models.load_model`: a `.keras` file or a folder with its content, or
            an `.h5` file, saved with or without kdist.
        strategy: The strategy; by default the strategy of the current scope.
        custom_objects: As for `keras.models.load_model`.
        compile: Whether to compile the model as it was saved.
        safe_mode: As for `keras.models.load_model`.

    Returns:
        The model.

    Raises:
        UserError: There is no strategy, or Keras cannot open the file.

    Examples:
        ```python
        strategy = kdist.MirroredStrategy(replicas=3)
        model = kdist.load_model("model.keras", strategy=strategy)
        model.fit(x, y, initial_epoch=5, epochs=10)
        ```
    """
    file = path_text("path", path)
    chosen: Any = tf.distribute.get_strategy() if strategy is None else strategy
    if not hasattr(chosen, "build"):
        raise UserError(
            "load_model was called without a strategy of kdist: pass strategy=, or call it inside"
            " `with strategy.scope():`"
        )

    def load() -> Any:
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                model = keras.models.load_model(
                    file, custom_objects=custom_objects, compile=compile, safe_mode=safe_mode
                )
        except Exception as error:  # any error of a damaged file or a user's class
            missing = _MISSING_CLASS.search(str(error))
            if missing is None:
                raise UserError(f"Keras cannot open {file}: {first_line(error)}") from error
            name = missing[1]
            raise UserError(
                f"Keras cannot open {file}: the model contains {name}, which Keras does not know;"
                f' pass custom_objects={{"{name}": {name}}}'
            ) from error
        for warning in warned:
            found = _NOT_LOADED.search(str(warning.message))
            if found is not None and int(found[1]) > _VARIABLES_BEFORE_BUILD:
                raise UserError(
                    f"the optimizer's state in {file} does not match the optimizer in its compile"
                    f" settings ({first_line(warning.message)}): if the model was trained with"
                    " another dtype policy, call keras.config.set_dtype_policy(...) first; or pass"
                    " compile=False"
                )
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
        return model

    opened: keras.Model = chosen.build(load)
    return opened


def first_line(error: Exception | Warning | str) -> str:
    """Return the first line of an error, or of the cause that Keras quotes in the error."""
    text = str(error).rpartition("Exception encountered:")[2].strip()
    lines = text.splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")
