"""`kdist train --config-from-wandb`: the settings that a W&B sweep's agent chose."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import TrainConfig
from ..errors import UserError
from .folders import check_folder

# A sweep is kept on a server: it does not decide which files this machine writes.
_OF_THE_MACHINE = ("run_dir", "log_dir", "track", "track_batches", "log_model", "profile_batches")


def sweep_config(settings: Mapping[str, Any], given: Mapping[str, Any]) -> TrainConfig:
    """Begin the W&B run of a sweep's agent and read its parameters.

    The run's files go where the agent's are: `wandb` in `WANDB_DIR`, or in the working directory.
    The run stays active, so that `tracking` takes it, and ends with the process.

    Args:
        settings: Settings that the parameters win over.
        given: Settings that were given on the command line.

    Returns:
        The settings with the parameters, tracked by W&B.

    Raises:
        UserError: There is no agent, W&B cannot begin a run, or a parameter is unknown, given
            twice, or of a value that will not do. The run is then marked as failed.
    """
    if not os.environ.get("WANDB_SWEEP_ID"):
        raise UserError(
            "--config-from-wandb is for the program of a W&B sweep, and no agent has started this"
            " one: run `wandb agent SWEEP`, or leave the option out"
        )
    folder = Path(os.environ.get("WANDB_DIR", "."))
    check_folder(folder / "wandb", "wandb")
    from .wandb_run import begin_run

    try:
        run = begin_run(folder, config={})
    except Exception as error:  # whatever wandb raises, there is nothing to train then
        raise UserError(f"W&B cannot begin the sweep's run: {error}") from error
    try:
        return config_of(dict(run.config), settings, given)
    except UserError:
        run.finish(exit_code=2)
        raise


def config_of(
    parameters: Mapping[str, Any], settings: Mapping[str, Any], given: Mapping[str, Any]
) -> TrainConfig:
    """The settings of a run of the sweep: its parameters over `settings`, beside `given`."""
    fields = [field.name for field in dataclasses.fields(TrainConfig)]
    known = [name for name in fields if name not in _OF_THE_MACHINE]
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise UserError(
            f"the sweep's parameter {', '.join(unknown)} is no setting of kdist train that a sweep"
            f" may choose: there are {', '.join(known)}"
        )
    twice = sorted(set(parameters) & set(given))
    if twice:
        raise UserError(
            f"{', '.join(twice)} is a parameter of the sweep and given on the command line: leave"
            " one of them out"
        )
    config = TrainConfig.from_dict({**settings, **parameters, **given})
    return dataclasses.replace(config, track=",".join({*config.trackers, "wandb"}))
