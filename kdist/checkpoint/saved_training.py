"""The state of a training: `copy_training` copies it, and `SavedTraining` restores it.

A state consists of arrays by name, and values that JSON can hold. `callback_states.py` has the
states of callbacks, `variable_values.py` the variables, `run_description.py` the compared settings.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from .._upstream.models import flatten_layers
from .._upstream.running_fits import running_fit
from .._upstream.seeds import make_global_seed_state
from ..errors import RefusedCheckpointsError
from ..workers.agreement import first_difference
from ..workers.worker_exchange import Workers
from .callback_states import CallbackStates
from .checkpoint_file import CheckpointFile
from .variable_values import (
    assign_values,
    averages_of_weights,
    build_optimizers,
    copy_values,
    find_difference,
    from_json,
    is_of_optimizer,
    metric_variables,
    optimizers_built_for,
    state_variables,
    to_json,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochState:
    """The state of the running epoch after a step; the next epoch resets metrics and logs.

    `arrays` has the values of metrics, and the arrays in the logs and in the states of callbacks;
    `logs` are the logs of the step. `variables` has the values, after that step, of variables that
    a validation may change. All other variables are copied when the training is saved.
    """

    arrays: dict[str, np.ndarray]
    variables: dict[str, np.ndarray]
    callbacks: dict[str, Any]
    logs: Any


def copy_epoch_state(
    model: keras.Model,
    callbacks: CallbackStates,
    logs: Any,
    workers: Workers,
    *,
    before_validation: bool = False,
) -> EpochState:
    """Copy the state of an epoch after the step that returned `logs`; values on the chief only.

    Before a validation, variables that are not trained are copied, too: the validation may change
    them, as it changes the state of a stateful layer.
    """
    arrays = copy_values(metric_variables(model), is_chief=workers.is_chief)
    variables = {
        name: variable
        for name, variable in state_variables(model).items()
        if before_validation and not variable.trainable and not is_of_optimizer(name)
    }
    saved_logs = to_json(logs, name="logs", arrays=arrays)
    return EpochState(
        arrays=arrays,
        variables=copy_values(variables, is_chief=workers.is_chief),
        callbacks=callbacks.copy(arrays),
        logs=saved_logs,
    )


def copy_training(
    model: keras.Model,
    callbacks: CallbackStates,
    epoch: EpochState | None,
    workers: Workers,
    *,
    is_stopping: bool,
    into: Mapping[str, np.ndarray] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return a copy of a training: arrays, which share no memory with it, and values for JSON.

    All workers must call this function; only the chief gets the variables. `epoch` is `None`
    between two epochs. `is_stopping` is whether any worker ends the training. The arrays of an
    earlier copy, `into`, are overwritten.
    """
    arrays = copy_values(state_variables(model), into=into, is_chief=workers.is_chief)
    arrays |= epoch.variables if epoch else {}
    callback_arrays: dict[str, np.ndarray] = {}
    fit = running_fit(model)
    state = {
        "stopped": is_stopping,
        "replicas": model.distribute_strategy.num_replicas_in_sync,
        "built_for": optimizers_built_for(model),
        "averages": averages_of_weights(model),
        "swapped": callbacks.have_swapped_averages,
        "variables": list(arrays),
        "metrics": [name for name in epoch.arrays if name.startswith("metrics/")] if epoch else [],
        "callbacks": epoch.callbacks if epoch else callbacks.copy(callback_arrays),
        "logs": epoch.logs if epoch else None,
        "data_ends": [*fit.data_ends.items()] if fit else [],
    }
    return arrays | (epoch.arrays if epoch else callback_arrays), state


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
        self.data_ends: dict[int, int] = dict(state.get("data_ends", ()))
        self._arrays = arrays
        self._state = state

    def check(self, model: keras.Model, settings: Mapping[str, Any]) -> None:
        """Check that a compiled model and its settings (`describe_run`) match the saved training.

        No value of the model changes. Optimizers are built if the saved training had built them.
        `RefusedCheckpointsError` names the first difference.
        """
        build_optimizers(model, self._state["built_for"])
        if any(name.startswith("global-seed/") for name in self._state["variables"]):
            make_global_seed_state(model.distribute_strategy)
        setting = first_difference("", [self._state["settings"], settings])
        if setting:
            where, (saved, here) = setting
            raise self._wrong_model_error(
                f"{where} is {_shorten_json(here)} here and {_shorten_json(saved)} in the"
                " checkpoint"
            )
        difference = find_difference(self._variables(model), self._values("variables"))
        if not difference and self.is_within_epoch:
            difference = find_difference(metric_variables(model), self._values("metrics"))
        if difference:
            unbuilt = next((layer for layer in flatten_layers(model) if not layer.built), None)
            if unbuilt is not None:
                difference += (
                    f" (if only because the layer {unbuilt.name} has no weights yet, call the model"
                    " on a batch before fit, such as model(x[:1]))"
                )
            raise self._wrong_model_error(difference)

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
        """How a finished training ended, as the beginning of a line."""
        return f"Training {'was stopped' if self.was_stopped else 'ended'} after epoch {self.epoch}"

    def _variables(self, model: keras.Model) -> dict[str, keras.Variable]:
        saved = {*self._state["variables"]}
        # Unrelated code of this process may have created a global seed that the saved run lacks.
        return {
            name: variable
            for name, variable in state_variables(model).items()
            if name in saved or not name.startswith("global-seed/")
        }

    def _values(self, kind: str) -> dict[str, np.ndarray]:
        return {name: self._arrays[name] for name in self._state[kind]}

    def _wrong_model_error(self, difference: str) -> RefusedCheckpointsError:
        return RefusedCheckpointsError(
            f"{self.checkpoint.path.parent} has checkpoints of another training: {difference}:"
            " pass another folder, or restore the settings of the earlier training"
        )


def _shorten_json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
