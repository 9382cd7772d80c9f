"""All that makes a training what it is: taken as arrays and values, put back into a model."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from .. import _upstream
from ..errors import RefusedCheckpointsError
from .callback_states import CallbackStates
from .generation import Generation
from .replica_values import assign_values, copy_values
from .state_json import from_json, to_json
from .training_fingerprint import first_setting_that_differs
from .variables import (
    averages_of_weights,
    build_optimizers,
    first_difference,
    metric_variables,
    optimizers_built_for,
    state_variables,
)
from .workers import Workers


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochPart:
    """What is of an epoch that has begun, and begins anew with the next.

    Attributes:
        arrays: What metrics have counted, and the arrays in the states of callbacks.
        callbacks: The states of callbacks.
        logs: The logs of the last step.
    """

    arrays: dict[str, np.ndarray]
    callbacks: dict[str, Any]
    logs: Any


def copy_epoch_part(
    model: keras.Model, callbacks: CallbackStates, logs: Any, workers: Workers
) -> EpochPart:
    """Copy what is of an epoch that has begun.

    Args:
        model: The model.
        callbacks: Of the fit.
        logs: The logs of the epoch's last step.
        workers: Of the training, of which the chief copies.
    """
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
    """Copy a training as arrays that nothing else holds, and values that JSON can hold.

    On another worker than the chief, only some of the arrays are there.

    Args:
        model: The compiled model.
        callbacks: Of the fit.
        part: What is of the epoch that has begun; `None` between two epochs.
        workers: Of the training, of which the chief copies.
        into: The arrays of an earlier copy that was written, to be filled again.
    """
    arrays = copy_values(state_variables(model), into=into) if workers.is_chief else {}
    callback_arrays: dict[str, np.ndarray] = {}
    state = {
        "stopped": bool(model.stop_training),
        "replicas": model.distribute_strategy.num_replicas_in_sync,
        "built_for": optimizers_built_for(model),
        "averages": averages_of_weights(model),
        "swapped": callbacks.have_swapped_averages,
        "variables": list(arrays),
        "metrics": [one for one in part.arrays if one.startswith("metrics/")] if part else [],
        "callbacks": part.callbacks if part else callbacks.copy(callback_arrays),
        "logs": part.logs if part else None,
    }
    return arrays | (part.arrays if part else callback_arrays), state


class SavedTraining:
    """A training as a generation has it.

    Args:
        generation: Says where the training was.
        arrays: Those of `copy_training`.
        state: Its state, with the training's `settings`.
    """

    def __init__(
        self,
        generation: Generation,
        arrays: Mapping[str, np.ndarray],
        state: Mapping[str, Any],
    ) -> None:
        self.generation = generation
        self.epoch, self.batch = generation.epoch, generation.batch
        self.is_amid_epoch = bool(generation.batch)
        self.was_stopped = bool(state["stopped"])
        self._arrays = arrays
        self._state = state
        self._stacked = state.get("stacked", [])

    def check(self, model: keras.Model, settings: Mapping[str, Any]) -> None:
        """Check that a model about to be trained is the one that was saved; changes no value.

        Args:
            model: The compiled model.
            settings: From `run_settings`.

        Raises:
            RefusedCheckpointsError: It is another one; the message names the first difference.
        """
        build_optimizers(model, self._state["built_for"])
        if any(name.startswith("global-seed/") for name in self._state["variables"]):
            _upstream.make_global_seed_state(model.distribute_strategy)
        setting = first_setting_that_differs(settings, self._state["settings"])
        if setting:
            where, here, saved = setting
            raise self._of_another(f"{where} is {_short(here)} here and {_short(saved)} there")
        difference = first_difference(
            self._variables(model), self._values("variables"), self._stacked
        )
        if not difference and self.is_amid_epoch:
            difference = self._difference_of_metrics(model)
        if difference:
            raise self._of_another(difference)

    def restore_variables(self, model: keras.Model) -> None:
        """Give weights, seeds and optimizers their values."""
        assign_values(
            self._variables(model),
            self._values("variables"),
            self._stacked,
        )

    def restore_epoch(self, model: keras.Model) -> None:
        """Give metrics what they had counted, once they were reset as the epoch began."""
        assign_values(
            metric_variables(model),
            self._values("metrics"),
            self._stacked,
        )
        _upstream.set_resumed_logs(model, self.logs)

    @property
    def logs(self) -> Any:
        """The logs of the last step of an epoch that had begun."""
        return from_json(self._state["logs"], self._arrays)

    @property
    def ending(self) -> str:
        """How a training that is over has ended."""
        return f"Training {'was stopped' if self.was_stopped else 'ended'} after epoch {self.epoch}"

    def prepare_callbacks(self, callbacks: CallbackStates) -> list[str]:
        """Restore what callbacks need before their `on_train_begin`; returns what is lost."""
        return callbacks.prepare(self._state["callbacks"], self._arrays)

    def restore_callbacks(self, callbacks: CallbackStates) -> None:
        """Restore the other states of callbacks."""
        callbacks.restore(self._state["callbacks"], self._arrays)

    def _difference_of_metrics(self, model: keras.Model) -> str | None:
        return first_difference(metric_variables(model), self._values("metrics"), self._stacked)

    def _variables(self, model: keras.Model) -> dict[str, keras.Variable]:
        saved = {*self._state["variables"]}
        # Other code of this process may have used the global seed, as this run has not.
        return {
            name: variable
            for name, variable in state_variables(model).items()
            if name in saved or not name.startswith("global-seed/")
        }

    def _values(self, kind: str) -> dict[str, np.ndarray]:
        return {name: self._arrays[name] for name in self._state[kind]}

    def _of_another(self, difference: str) -> RefusedCheckpointsError:
        return RefusedCheckpointsError(
            f"{self.generation.path.parent} has checkpoints of another training: {difference}:"
            " pass another folder, or train as before"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
