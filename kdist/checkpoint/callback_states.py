"""`CallbackStates`: the states of a fit's callbacks, copied and restored."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from .._upstream.keras_callback_states import (
    STATEFUL,
    STATELESS,
    has_attributes,
    has_swapped_averages,
)
from ..errors import UserError
from .variable_values import to_json


def continue_csv_log(logger: keras.callbacks.CSVLogger, epoch: int) -> None:
    """Let a `CSVLogger` append to its file, without the rows of `epoch` and later epochs.

    Call this function before the logger's `on_train_begin`.
    """
    path = Path(logger.filename)
    rows = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    while rows and not _is_row_before(rows[-1], epoch):
        rows.pop()
    if rows and rows[0].startswith(b"epoch"):
        os.truncate(path, len(b"".join(rows)))
        logger.append = True
        logger.keys = rows[0].decode().rstrip().split(logger.sep)[1:]


def _is_row_before(row: bytes, epoch: int) -> bool:
    """Whether a row is complete, and is the header or has an earlier epoch in its first column."""
    number = re.match(rb"\d+", row)
    return row.endswith(b"\n") and (number is None or int(number[0]) < epoch)


class CallbackStates:
    """The states of a fit's callbacks.

    A callback with `get_state` and `set_state` defines its own state; the states of Keras's
    callbacks are known. `set_state` is called after `on_train_begin`, or, to resume within an
    epoch, after the first `on_epoch_begin`, because these methods often reset the state. A callback
    with a true `state_is_set_before_training` gets its state before `on_train_begin`.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = dict(zip(_number_names(callbacks), callbacks, strict=True))
        self._appends: dict[keras.callbacks.CSVLogger, bool] = {}

    def copy(self, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return the states as JSON values; arrays in the states are added to `arrays`."""
        states = {}
        for name, callback in self._callbacks.items():
            state = _read_state(callback)
            if state is not None:
                try:
                    states[name] = to_json(state, name=f"callbacks/{name}", arrays=arrays)
                except TypeError as error:
                    raise UserError(
                        f"{error}: let get_state() of the callback {name} return only numbers,"
                        " text, arrays, lists and dictionaries"
                    ) from error
        return states

    def restore_before_training(self, states: Mapping[str, Any], *, epoch: int) -> None:
        """Restore the states that callbacks need in `on_train_begin`, before `epoch` is trained."""
        for name, callback in self._callbacks.items():
            if isinstance(callback, keras.callbacks.CSVLogger):
                self._appends[callback] = callback.append
                continue_csv_log(callback, epoch)
            elif name in states and _is_set_before_training(callback):
                callback.set_state(states[name])

    def restore(self, states: Mapping[str, Any]) -> None:
        """Restore the remaining states, after `on_train_begin` or the first `on_epoch_begin`."""
        for logger, append in self._appends.items():
            logger.append = append
        for name, callback in self._callbacks.items():
            if name not in states or _is_set_before_training(callback):
                continue
            if hasattr(callback, "set_state"):
                callback.set_state(states[name])
            else:
                vars(callback).update(states[name])

    @property
    def have_swapped_averages(self) -> bool:
        """Whether the model now holds the averages of its weights instead of the weights."""
        return any(has_swapped_averages(callback) for callback in self._callbacks.values())

    def warn_of_unsaved(self) -> None:
        """Warn about callbacks with an unknown state."""
        unsaved = [name for name, callback in self._callbacks.items() if not _is_known(callback)]
        if unsaved:
            warnings.warn(
                f"Checkpoint does not save the state of {', '.join(unsaved)}: a resumed run starts"
                " these callbacks afresh. Give the callbacks get_state() and set_state(state).",
                stacklevel=2,
            )


def _read_state(callback: Any) -> Any:
    """Return a callback's state; `None` for a callback without state."""
    if hasattr(callback, "get_state"):
        return callback.get_state()
    for kind, attributes in STATEFUL.items():
        if isinstance(callback, kind):
            return {name: getattr(callback, name, None) for name in attributes}
    return None


def _number_names(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """Return the class names of the callbacks; repeated names are numbered."""
    seen: Counter[str] = Counter()
    names = []
    for callback in callbacks:
        name = type(callback).__name__
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _is_set_before_training(callback: keras.callbacks.Callback) -> bool:
    """Whether `set_state` is called before `on_train_begin`, not after it."""
    return getattr(callback, "state_is_set_before_training", False)


def _is_known(callback: keras.callbacks.Callback) -> bool:
    if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
        return True
    known = (*STATEFUL, *STATELESS)
    if type(callback) in known:
        return True
    # A subclass may have more state than its base class.
    return not isinstance(callback, known) and not has_attributes(callback)
