"""`kdist train --resume`: continue a run that ended early."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..arguments import is_remote
from ..errors import UserError, message_without_path
from ..fields import field_names
from ..remote import folder_address, local_records
from ..workers.tf_config import worker_place
from .config import TrainConfig
from .run import train
from .run_record import RunRecord, TrainResult, read_run
from .settings import Checkpoints

_DEVICE_SETTINGS = {"replicas", "shard_optimizer", "shard_weights"}
MAY_CHANGE = field_names(Checkpoints) | _DEVICE_SETTINGS | {"epochs", "data_dir"}
"""Settings that may differ when a run is resumed. If `data_dir` differs, the images have to be
the same."""


def resume_run(
    path: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    announce: Callable[[str], None] = print,
    **options: Any,
) -> TrainResult | None:
    """Continue a run that was killed, interrupted or preempted, from its newest checkpoint.

    The result is that of an uninterrupted run: bit for bit on the same number of replicas, and up
    to rounding on a different number. Global batch and learning rate stay the same. With more
    epochs, a finished run continues as well; a schedule that ends with the run (`cosine`, `linear`)
    then spans the new number of epochs.

    Args:
        path: The run's folder or its address, trained with `checkpoint_every`.
        changes: Settings by name. Unchanged settings may be repeated. Only `replicas`,
            `shard_optimizer`, `shard_weights`, a larger `epochs`, `data_dir`, `checkpoint_every`,
            `keep` and `preemption_signal` may differ, and the location of a `model` or `data` file
            that has moved.
        announce: Called with lines that describe the run.
        **options: `callbacks` and `verbose`, as for `train`.

    Returns:
        The result; `None` if the run is finished.

    Raises:
        UserError: `path` is not a run folder, has no checkpoints or checkpoints of a different run,
            is in use by another process, or a setting differs. The folder is unchanged.
        TrainingError: As for `train`.

    Examples:
        ```python
        result = kdist.training.resume_run("runs/fast", {"epochs": 8})
        ```
    """
    config = load_config_to_resume(path, changes or {}, announce=announce)
    if config is None:
        return None
    return train(config, resume=True, announce=announce, **options)


def load_config_to_resume(
    path: str | Path, changes: Mapping[str, Any], *, announce: Callable[[str], None] = print
) -> TrainConfig | None:
    """Return the settings for `train(..., resume=True)`; `None` if the run is finished.

    Arguments and errors as for `resume_run`.
    """
    address = folder_address("the run to resume", path)
    with local_records(address) as folder:
        name = address if is_remote(address) else str(folder)
        try:
            run = read_run(folder, unfinished=True)
        except (UserError, OSError) as error:
            raise UserError(f"cannot resume {name}: {message_without_path(error)}") from error
        config = make_resumed_config(run, changes, run_dir=name)
        line = explain_finished_run(run, config)
    if line is not None:
        if worker_place(os.environ).is_chief:
            announce(line.replace(str(folder), name))
        return None
    return config


def make_resumed_config(run: RunRecord, changes: Mapping[str, Any], *, run_dir: str) -> TrainConfig:
    """Return the settings to resume a run with: the run's settings, with the permitted changes.

    Args:
        run: The run.
        changes: Settings by name.
        run_dir: The path or address of the run's folder.

    Raises:
        UserError: A setting that may not change differs. The message names the first such setting.
    """
    moved = {name: changes[name] for name in _list_moved(run) if name in changes}
    saved = TrainConfig.from_dict({**run.settings, "run_dir": run_dir, **moved})
    config = TrainConfig.from_dict({**saved.to_dict(), **changes})
    for name, saved_value in saved.to_dict().items():
        value = getattr(config, name)
        if value != saved_value and name not in MAY_CHANGE:
            option = "the model" if name == "model" else f"--{name.replace('_', '-')}"
            raise UserError(
                f"{run.path} was trained with {name}={saved_value}, received {name}={value}: leave"
                f" out {option} to resume the run, or start a new run with --run-dir"
            )
    if config.epochs < saved.epochs:
        raise UserError(
            f"{run.path} was started with epochs={saved.epochs}, received {config.epochs}; a"
            " resumed run can have more epochs, not fewer: leave out --epochs to resume the run"
        )
    if saved.checkpoint_every is None and run.status != "complete":
        raise UserError(
            f"{run.path} was trained without checkpoints, so it cannot be resumed: start a new run"
            " with --checkpoint-every 60 --run-dir NEW"
        )
    return config


def _list_moved(run: RunRecord) -> list[str]:
    """Return the settings among `model` and `data` whose file no longer exists."""
    files = {
        name: str(run.settings.get(name) or "").rpartition(":")[0] for name in ("model", "data")
    }
    return [name for name, file in files.items() if file and not os.path.isfile(file)]


def explain_finished_run(run: RunRecord, config: TrainConfig) -> str | None:
    """Return a line that says why no training is left; `None` if there is training to do.

    Raises:
        UserError: More epochs are requested, but the finished run has no checkpoints.
    """
    if run.status != "complete":
        return None
    epochs = int(run.summary_number("epochs") or 0)
    reached = run.summary.get("reached_target")
    if reached or epochs < run.settings["epochs"]:
        reason = (
            "its target was reached" if reached else "a callback, time budget or search ended it"
        )
        return f"{run.path} stopped after epoch {epochs}, as {reason}: nothing is left to train"
    if config.epochs <= epochs:
        return (
            f"{run.path} is finished after {epochs} epochs: nothing is left to train; --epochs with"
            " a larger number trains it further"
        )
    if run.settings.get("checkpoint_every") is None:
        raise UserError(
            f"{run.path} was trained without checkpoints, so it cannot be trained further: start a"
            " new run with --checkpoint-every 60 --run-dir NEW"
        )
    return None
