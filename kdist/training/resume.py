"""`kdist train --resume`: continue a run that ended before its time."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..arguments import path_text
from ..checkpoint.store import FolderLock, checkpoint_files
from ..errors import UserError, error_text
from ..fields import field_names
from ..files import explain_write_errors
from ..runs.folder import RunFolder, saved_model
from ..runs.record import RunRecord, read_run
from .config import TrainConfig
from .result import TrainResult
from .settings import Checkpoints
from .worker_place import worker_place

MAY_CHANGE = field_names(Checkpoints) | {"replicas", "shard_optimizer", "epochs", "data_dir"}
"""Settings with which a run may be resumed that are not its own. The images are compared, wherever
they are found."""


def resume_run(
    path: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    announce: Callable[[str], None] = print,
    **options: Any,
) -> TrainResult | None:
    """Continue a run that was killed, interrupted or preempted, from its newest checkpoint.

    It ends as if it had not been interrupted: bit for bit on the same number of replicas, and up to
    rounding on another number, with the run's global batch and learning rate. With more epochs, a
    finished run is continued, too; a schedule that ends with the run (`cosine`, `linear`) is then
    that of the new number of epochs.

    Args:
        path: The run's folder, trained with `checkpoint_every`.
        changes: Settings by name. Those of the run may be repeated; only `replicas`,
            `shard_optimizer`, a larger `epochs`, `data_dir`, `checkpoint_every`, `keep` and
            `preemption_signal` may differ, and the location of a `model` or `data` whose file has
            moved.
        announce: Called with lines that describe the run.
        **options: `callbacks` and `verbose`, as for `train`.

    Returns:
        The result; `None` if the run is finished.

    Raises:
        UserError: It is not a run folder, has no checkpoints or those of another training run, is
            in use by another process, or a setting differs. The folder is unchanged.
        TrainingError: As for `train`.

    Example:
        ```python
        result = kdist.training.resume_run("runs/fast", {"epochs": 8})
        ```
    """
    config = config_to_resume(path, changes or {}, announce=announce)
    if config is None:
        return None
    from .train_run import train

    return train(config, resume=True, announce=announce, **options)


def config_to_resume(
    path: str | Path, changes: Mapping[str, Any], *, announce: Callable[[str], None] = print
) -> TrainConfig | None:
    """Return the settings for `train(..., resume=True)`; `None` if the run is finished.

    Args:
        path: As in `resume_run`.
        changes: As in `resume_run`.
        announce: Called with a line if the run is finished.

    Raises:
        UserError: As in `resume_run`.
    """
    folder = Path(path_text("the run to resume", path))
    try:
        run = read_run(folder, unfinished=True)
    except (UserError, OSError) as error:
        raise UserError(f"cannot resume {folder}: {error_text(error)}") from error
    config = resumed_config(run, changes)
    line = nothing_left(run, config)
    if line is not None:
        if worker_place(os.environ).is_chief:
            announce(line)
        return None
    if worker_place(os.environ).is_chief:
        _check_free(folder)
    return config


def resumed_config(run: RunRecord, changes: Mapping[str, Any]) -> TrainConfig:
    """Return the settings to resume a run with: its own, but for those that may change.

    Args:
        run: The run.
        changes: Settings by name.

    Raises:
        UserError: Another setting differs; the message names the first.
    """
    own = TrainConfig.from_dict(
        {**run.settings, "run_dir": str(run.path), **_moved_files(run, changes)}
    )
    config = TrainConfig.from_dict({**own.to_dict(), **changes})
    for name, was in own.to_dict().items():
        asked = getattr(config, name)
        if asked != was and name not in MAY_CHANGE:
            raise UserError(
                f"{run.path} was trained with {name}={was}, which {name}={asked} would change:"
                " remove it to resume the run, or begin another with --run-dir"
            )
    if config.epochs < own.epochs:
        raise UserError(
            f"{run.path} is a run of epochs={own.epochs}, which can become more, not"
            f" {config.epochs}: remove it to resume the run"
        )
    if own.checkpoint_every is None and not run.status.is_complete:
        raise UserError(
            f"{run.path} was trained without checkpoints, so it cannot be resumed: begin anew with"
            " --checkpoint-every SECONDS and another --run-dir"
        )
    return config


def _moved_files(run: RunRecord, changes: Mapping[str, Any]) -> dict[str, str]:
    """The places where a user's functions are now, if the files that the run names are gone.

    Raises:
        UserError: One is gone, and `changes` do not say where it is.
    """
    moved = {}
    for name in ("model", "data"):
        path, _, function = str(run.settings.get(name) or "").rpartition(":")
        if not path or os.path.isfile(path):
            continue
        now = str(changes.get(name) or "")
        if now.rpartition(":")[2] != function or ":" not in now:
            option = "--data " if name == "data" else ""
            raise UserError(
                f"{run.path} was trained with {path}, which is gone: put it back, or name its new"
                f" place: kdist train --resume {run.path} {option}FILE.py:{function}"
            )
        moved[name] = now
    return moved


def nothing_left(run: RunRecord, config: TrainConfig) -> str | None:
    """Return a line that says why there is nothing to train; `None` if there is.

    Args:
        run: The run.
        config: The settings to resume it with.

    Raises:
        UserError: It is finished, has no checkpoints, and more epochs are asked for.
    """
    if not run.status.is_complete or _lacks_model(run, config):
        return None
    epochs = int(run.fact("epochs") or 0)
    if run.summary.get("reached_target") or epochs < run.settings["epochs"]:
        why = _why_stopped(run)
        return f"{run.path} stopped after epoch {epochs}{why}: nothing is left to train"
    if config.epochs <= epochs:
        return (
            f"{run.path} is finished after {epochs} epochs: nothing is left to train; --epochs with"
            " a larger number trains it further"
        )
    if run.settings.get("checkpoint_every") is None:
        raise UserError(
            f"{run.path} was trained without checkpoints, so it cannot be trained further: begin"
            " anew with --checkpoint-every SECONDS and another --run-dir"
        )
    return None


def _lacks_model(run: RunRecord, config: TrainConfig) -> bool:
    """Whether a run was killed behind `summary.json`, before its model was saved.

    The model may then be that of fewer epochs. Without checkpoints it cannot be made.
    """
    if not config.save_model or not checkpoint_files(run.path / "checkpoints"):
        return False
    summary = (run.path / "summary.json").stat().st_mtime_ns
    saved = saved_model(run.path)
    return saved is None or saved.stat().st_mtime_ns < summary


def _check_free(folder: Path) -> None:
    """Check that no other process trains the run, before TensorFlow is imported."""
    checkpoints = RunFolder(str(folder), resumed=True).checkpoints
    hint = "pass a folder that can be written"
    with explain_write_errors(checkpoints, hint=hint):
        if checkpoints.exists():
            FolderLock(checkpoints).release()


def _why_stopped(run: RunRecord) -> str:
    if run.summary.get("reached_target"):
        return ", as its target was reached"
    return ", as its time was up" if run.settings.get("time_budget") is not None else ""
