"""`kdist train --config-from-wandb`: settings chosen by the agent of a W&B sweep."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..tracking.factory import check_folder
from .config import TrainConfig
from .fields import field_names
from .settings import Checkpoints, Output, OwnModel

# A sweep is stored on a server: it must not decide which files this machine writes, or which
# code it runs.
_OF_THE_MACHINE = field_names(Output, Checkpoints, OwnModel)


def sweep_config(settings: Mapping[str, Any], given: Mapping[str, Any]) -> TrainConfig:
    """Start the W&B run of a sweep's agent and read its parameters.

    The run's files are written beside the agent's: to `wandb` in `WANDB_DIR` or in the working
    directory. The run stays active, so that `tracking` uses it, and ends with the process.

    Args:
        settings: Settings that the sweep's parameters override.
        given: Settings given on the command line.

    Returns:
        The settings with the sweep's parameters, tracked by W&B.

    Raises:
        UserError: There is no agent, W&B cannot start a run, or a parameter is unknown, given
            twice or invalid. The run is then marked as failed.
    """
    if not os.environ.get("WANDB_SWEEP_ID"):
        raise UserError(
            "--config-from-wandb only works in a process started by a W&B sweep's agent: run"
            " `wandb agent SWEEP`, or remove the option"
        )
    folder = Path(os.environ.get("WANDB_DIR", "."))
    check_folder(folder / "wandb", "wandb")
    from ..tracking.wandb_tracker import begin_run

    try:
        run = begin_run(folder, config={})
    except Exception as error:  # whatever wandb raises, there is nothing to train then
        raise UserError(f"W&B cannot start the sweep's run: {error}") from error
    try:
        return config_of(dict(run.config), settings, given)
    except UserError:
        run.finish(exit_code=2)
        raise


def config_of(
    parameters: Mapping[str, Any], settings: Mapping[str, Any], given: Mapping[str, Any]
) -> TrainConfig:
    """Return the settings of a run of the sweep: `settings`, its parameters, then `given`."""
    fields = [field.name for field in dataclasses.fields(TrainConfig)]
    known = [name for name in fields if name not in _OF_THE_MACHINE]
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise UserError(
            f"the sweep's parameter {', '.join(unknown)} is not a setting of kdist train that a"
            f" sweep may choose: available are {', '.join(known)}"
        )
    twice = sorted(set(parameters) & set(given))
    if twice:
        raise UserError(
            f"{', '.join(twice)} is a parameter of the sweep and also given on the command line:"
            " remove one of them"
        )
    config = TrainConfig.from_dict({**settings, **parameters, **given})
    return dataclasses.replace(config, track=",".join({*config.trackers, "wandb"}))
