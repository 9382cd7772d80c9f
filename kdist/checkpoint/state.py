"""The state of a training: copy from a model and its callbacks, comparison, and restoration."""

import dataclasses
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.callback_attributes import (
    STATEFUL,
    STATELESS,
    has_attributes,
    has_swapped_averages,
)
from .._upstream.data_sources import array_sizes
from .._upstream.fit_data import running_fit
from .._upstream.models import flatten_layers, optimizers_of
from .._upstream.optimizers import is_average_warmed_up, steps_taken
from .._upstream.seeds import make_global_seed_state
from ..errors import RefusedCheckpointsError, UserError
from ..workers.agreement import ANY, first_difference
from ..workers.exchange import Workers
from .checkpoint_options import CheckpointOptions
from .export import serialize_model
from .store import CheckpointFile
from .values import (
    assign_values,
    averages_of_weights,
    build_optimizers,
    copy_values,
    find_difference,
    from_json,
    metric_variables,
    optimizers_built_for,
    state_variables,
    to_json,
)


def continue_csv_log(logger: keras.callbacks.CSVLogger, epoch: int) -> None:
    """Have a `CSVLogger` add to its file, without the rows of `epoch` and later epochs.

    Call it before the logger's `on_train_begin`.
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
    """Whether a row is complete, and the header or of an earlier epoch (in the first column)."""
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
        """Return the states as values that JSON can hold; `arrays` gets their arrays.

        Raises:
            UserError: A callback's `get_state` returned a value of a type that cannot be saved.
        """
        states = {}
        for name, callback in self._callbacks.items():
            state = _read_state(callback)
            if state is not None:
                try:
                    states[name] = to_json(state, name=f"callbacks/{name}", arrays=arrays)
                except TypeError as error:
                    raise UserError(
                        f"the state of the callback {name} cannot be saved: {error}: have"
                        " get_state() return numbers, text, arrays, lists and dictionaries"
                    ) from error
        return states

    def restore_before_training(self, saved: "SavedTraining") -> None:
        """Restore the states that callbacks need in `on_train_begin`."""
        for name, callback in self._callbacks.items():
            if isinstance(callback, keras.callbacks.CSVLogger):
                self._appends[callback] = callback.append
                continue_csv_log(callback, saved.epoch)
            elif name in saved.callbacks and _is_set_before_training(callback):
                callback.set_state(saved.callbacks[name])

    def restore(self, saved: "SavedTraining") -> None:
        """Restore the remaining states, after `on_train_begin` or the first `on_epoch_begin`."""
        for logger, append in self._appends.items():
            logger.append = append
        for name, callback in self._callbacks.items():
            if name not in saved.callbacks or _is_set_before_training(callback):
                continue
            if hasattr(callback, "set_state"):
                callback.set_state(saved.callbacks[name])
            else:
                vars(callback).update(saved.callbacks[name])

    @property
    def have_swapped_averages(self) -> bool:
        """Whether the model now holds the averages of its weights instead of the weights."""
        return any(has_swapped_averages(callback) for callback in self._callbacks.values())

    def warn_of_unsaved(self) -> None:
        """Warn about callbacks with an unknown state."""
        unsaved = [n for n, callback in self._callbacks.items() if not _is_known(callback)]
        if unsaved:
            warnings.warn(
                f"Checkpoint does not save the state of {', '.join(unsaved)}: a resumed training"
                " begins with new ones. Give them get_state() and set_state(state).",
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
    """Whether the state is set before `on_train_begin`, which begins anew without a state."""
    return getattr(callback, "state_is_set_before_training", False)


def _is_known(callback: keras.callbacks.Callback) -> bool:
    if hasattr(callback, "get_state") and hasattr(callback, "set_state"):
        return True
    known = (*STATEFUL, *STATELESS)
    if type(callback) in known:
        return True
    # A subclass may have more state than its base class.
    return not isinstance(callback, known) and not has_attributes(callback)


# Config entries that are not compared. Seeds and initializers only decide a layer's first values,
# and the checkpoint restores all values.
_IRRELEVANT = re.compile(
    r"name|seed|trainable|batch_shape|.*_initializer|build_config|shared_object_id"
)


def describe_run(
    model: keras.Model, steps: int | None, options: CheckpointOptions
) -> dict[str, Any]:
    """Return a JSON-compatible description of a training of `steps` per epoch.

    `"settings"` must be the same when the training is resumed.
    """
    layers = [_layer_config(layer) for layer in flatten_layers(model)]
    optimizers = [
        _optimizer_config(optimizer, any_rate=options.any_rate)
        for optimizer in optimizers_of(model)
    ]
    settings = {
        "layers": [layer for layer in layers if layer is not None],
        "optimizers": optimizers,
        "loss": _compile_argument(model, "loss"),
        "loss_weights": _compile_argument(model, "loss_weights"),
        "data": {"steps": steps, "arrays": array_sizes(model), "description": options.data},
    }
    return {
        "settings": _comparable_value(settings),
        "model": serialize_model(model),
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
    }


def _layer_config(layer: keras.layers.Layer) -> dict[str, Any] | None:
    """Return class and config of a layer; `None` for a layer that contains layers."""
    if flatten_layers(layer):
        return None
    return (
        {"class": type(layer).__name__}
        | _serialize_config(layer)
        | {"dtype": layer.dtype_policy.name}
    )


def _optimizer_config(optimizer: keras.optimizers.Optimizer, *, any_rate: bool) -> dict[str, Any]:
    config = {"class": type(optimizer).__name__, **_serialize_config(optimizer)}
    if is_average_warmed_up(optimizer):
        config["ema_warmup"] = True
    # The learning rate of a trained model is a part of its state, and is restored.
    has_begun = steps_taken(optimizer) > 0
    return dict(_drop_rates(config)) if has_begun or any_rate else config


def _drop_rates(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: ANY if key == "learning_rate" else _drop_rates(item) for key, item in value.items()
        }
    return [_drop_rates(item) for item in value] if isinstance(value, list) else value


def _serialize_config(thing: Any) -> dict[str, Any]:
    try:
        return dict(keras.saving.serialize_keras_object(thing).get("config") or {})
    except Exception:  # a user's own get_config may raise anything
        return {}


def _compile_argument(model: keras.Model, name: str) -> Any:
    try:
        return (model.get_compile_config() or {}).get(name)
    except Exception:  # as for _serialize_config
        return None


def _comparable_value(value: Any) -> Any:
    """Return a value without the entries of `_IRRELEVANT`, and with class names for objects.

    Names are irrelevant because Keras numbers them anew in every process.
    """
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if not _IRRELEVANT.fullmatch(str(k))}
        return {str(key): _comparable_value(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_comparable_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochPart:
    """The state of an epoch that has begun: metrics and logs begin anew with the next epoch.

    Attributes:
        arrays: The values of metrics, and the arrays in the logs and in the states of callbacks.
        callbacks: The states of callbacks.
        logs: The logs of the last step.
    """

    arrays: dict[str, np.ndarray]
    callbacks: dict[str, Any]
    logs: Any


def copy_epoch_part(
    model: keras.Model, callbacks: CallbackStates, logs: Any, workers: Workers
) -> EpochPart:
    """Copy the state of an epoch after a step that returned `logs`; the chief alone has metrics."""
    arrays = copy_values(metric_variables(model)) if workers.is_chief else {}
    saved_logs = to_json(logs, name="logs", arrays=arrays)
    return EpochPart(callbacks=callbacks.copy(arrays), logs=saved_logs, arrays=arrays)


def copy_training(
    model: keras.Model,
    callbacks: CallbackStates,
    part: EpochPart | None,
    workers: Workers,
    *,
    into: Mapping[str, np.ndarray] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Copy a training into arrays of their own memory, and into values that JSON can hold.

    All workers must call this function; only the chief gets the variables. `part` is `None` between
    two epochs. `into` has the arrays of an earlier copy, to be overwritten.
    """
    arrays = copy_values(state_variables(model), into=into, is_chief=workers.is_chief)
    callback_arrays: dict[str, np.ndarray] = {}
    state = {
        "stopped": bool(model.stop_training),
        "replicas": model.distribute_strategy.num_replicas_in_sync,
        "built_for": optimizers_built_for(model),
        "averages": averages_of_weights(model),
        "swapped": callbacks.have_swapped_averages,
        "variables": list(arrays),
        "metrics": [name for name in part.arrays if name.startswith("metrics/")] if part else [],
        "callbacks": part.callbacks if part else callbacks.copy(callback_arrays),
        "logs": part.logs if part else None,
    }
    return arrays | (part.arrays if part else callback_arrays), state


class SavedTraining:
    """A training that was read from a checkpoint, with the results of `copy_training`."""

    def __init__(
        self,
        checkpoint: CheckpointFile,
        arrays: Mapping[str, np.ndarray],
        state: Mapping[str, Any],
    ) -> None:
        self.checkpoint = checkpoint
        self.epoch, self.batch = checkpoint.epoch, checkpoint.batch
        self.is_within_epoch = bool(checkpoint.batch)
        self.was_stopped = bool(state["stopped"])
        self.callbacks: dict[str, Any] = from_json(state["callbacks"], arrays)
        self._arrays = arrays
        self._state = state

    def check(self, model: keras.Model, settings: Mapping[str, Any]) -> None:
        """Check that a compiled model and its settings (`describe_run`) match the saved training.

        No value changes. Optimizers that the saved training had built are built.

        Raises:
            RefusedCheckpointsError: The models or their settings differ; the message names the
                first difference.
        """
        build_optimizers(model, self._state["built_for"])
        if any(name.startswith("global-seed/") for name in self._state["variables"]):
            make_global_seed_state(model.distribute_strategy)
        setting = first_difference("", [self._state["settings"], settings])
        if setting:
            where, (saved, here) = setting
            raise self._of_another(
                f"{where} is {_shorten_json(here)} here and {_shorten_json(saved)} there"
            )
        difference = find_difference(self._variables(model), self._values("variables"))
        if not difference and self.is_within_epoch:
            difference = find_difference(metric_variables(model), self._values("metrics"))
        if difference:
            raise self._of_another(difference)

    def restore_variables(self, model: keras.Model) -> None:
        """Restore the values of weights, seeds and optimizers."""
        assign_values(self._variables(model), self._values("variables"))

    def restore_epoch(self, model: keras.Model) -> None:
        """Restore the metrics and the last logs, after the start of the epoch has reset them."""
        assign_values(metric_variables(model), self._values("metrics"))
        fit = running_fit(model)
        if fit is not None:
            fit.resumed_logs = self.logs

    @property
    def logs(self) -> Any:
        """The logs of the epoch's last trained step; `None` for a checkpoint between two epochs."""
        return from_json(self._state["logs"], self._arrays)

    @property
    def ending(self) -> str:
        """The end of a finished training in words."""
        return f"Training {'was stopped' if self.was_stopped else 'ended'} after epoch {self.epoch}"

    def _variables(self, model: keras.Model) -> dict[str, keras.Variable]:
        saved = {*self._state["variables"]}
        # Unrelated code of this process may have made a global seed that the saved run lacks.
        return {
            name: variable
            for name, variable in state_variables(model).items()
            if name in saved or not name.startswith("global-seed/")
        }

    def _values(self, kind: str) -> dict[str, np.ndarray]:
        return {name: self._arrays[name] for name in self._state[kind]}

    def _of_another(self, difference: str) -> RefusedCheckpointsError:
        return RefusedCheckpointsError(
            f"{self.checkpoint.path.parent} has checkpoints of another training: {difference}:"
            " pass another folder, or train as before"
        )


def _shorten_json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
