"""What callbacks have noted so far, saved and restored with the training."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from .. import _upstream
from ..errors import UserError
from .csv_log import CSVLog
from .state_json import from_json, to_json


class CallbackStates:
    """The states of a fit's callbacks.

    A callback that has `get_state` and `set_state` says itself what its state is; Keras's own are
    known here. `set_state` is called after `on_train_begin`, and amid an epoch after the first
    `on_epoch_begin`, which often begin anew.

    Args:
        callbacks: All of the fit.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = dict(zip(_names(callbacks), callbacks, strict=True))
        self._logs = {
            name: CSVLog(callback)
            for name, callback in self._callbacks.items()
            if isinstance(callback, keras.callbacks.CSVLogger)
        }

    def copy(self, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return the states as values that JSON can hold.

        Args:
            arrays: Gets the arrays in them.

        Raises:
            UserError: A callback's `get_state` returned a value of a type that cannot be saved.
        """
        states = {}
        for name, callback in self._callbacks.items():
            state = self._state_of(name, callback)
            if state is not None:
                try:
                    states[name] = to_json(state, name=f"callbacks/{name}", arrays=arrays)
                except TypeError as error:
                    raise UserError(
                        f"the state of the callback {name} cannot be saved: {error}: have"
                        " get_state() return numbers, text, arrays, lists and dictionaries"
                    ) from error
        return states

    def prepare(self, states: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[str]:
        """Restore before `on_train_begin` what has to be there by then.

        Args:
            states: What `copy` returned.
            arrays: What it put into `arrays`.

        Returns:
            A line for each file that has lost rows.
        """
        lost = []
        for name, callback in self._callbacks.items():
            if name in states and name in self._logs:
                lost.append(self._logs[name].prepare(from_json(states[name], arrays)))
            elif name in states and _is_set_before_training(callback):
                callback.set_state(from_json(states[name], arrays))
        return [line for line in lost if line]

    def without_files(self, states: Mapping[str, Any]) -> dict[str, Any]:
        """Return the states but those of callbacks that continue a file of the same training."""
        return {name: state for name, state in states.items() if name not in self._logs}

    def restore(self, states: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the states after `on_train_begin`, or amid an epoch after `on_epoch_begin`."""
        for name, callback in self._callbacks.items():
            if name not in states or _is_set_before_training(callback):
                continue
            state = from_json(states[name], arrays)
            if name in self._logs:
                self._logs[name].restore(state)
            elif hasattr(callback, "set_state"):
                callback.set_state(state)
            else:
                vars(callback).update(state)

    @property
    def have_swapped_averages(self) -> bool:
        """Whether the model has the averages of its weights now, instead of its weights."""
        return any(_upstream.has_swapped_averages(one) for one in self._callbacks.values())

    def warn_of_unsaved(self) -> None:
        """Warn of callbacks whose state nobody knows."""
        unsaved = [n for n, callback in self._callbacks.items() if not _is_known(callback)]
        if unsaved:
            warnings.warn(
                f"Checkpoint does not save the state of {', '.join(unsaved)}: a resumed training"
                " begins with new ones. Give them get_state() and set_state(state).",
                stacklevel=2,
            )

    def _state_of(self, name: str, callback: Any) -> Any:
        if name in self._logs:
            return self._logs[name].state()
        if hasattr(callback, "get_state"):
            return callback.get_state()
        attributes = _attributes(callback)
        return {one: getattr(callback, one, None) for one in attributes} if attributes else None


def _names(callbacks: Sequence[keras.callbacks.Callback]) -> list[str]:
    """Class names, numbered where there are several of one."""
    seen: Counter[str] = Counter()
    names = []
    for callback in callbacks:
        name = type(callback).__name__
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _attributes(callback: keras.callbacks.Callback) -> tuple[str, ...]:
    for kind, attributes in _upstream.STATEFUL.items():
        if isinstance(callback, kind):
            return attributes
    return ()


def _is_set_before_training(callback: keras.callbacks.Callback) -> bool:
    """As kdist's own are, whose `on_train_begin` begins anew unless a state was set."""
    return getattr(callback, "state_is_set_before_training", False)


def _is_known(callback: keras.callbacks.Callback) -> bool:
    if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
        return True
    known = (*_upstream.STATEFUL, *_upstream.STATELESS, keras.callbacks.CSVLogger)
    if type(callback) in known:
        return True
    # A subclass may keep more than its base class does.
    return not isinstance(callback, known) and not _upstream.has_attributes(callback)
