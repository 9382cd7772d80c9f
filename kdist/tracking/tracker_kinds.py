"""The trackers, by their names. To add one, add its entry here, and its callbacks in a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .wandb_account import asked_mode

# The trackers are imported inside the functions: an invalid name or folder is reported before
# wandb, TensorFlow and TensorBoard are imported.


@dataclass(frozen=True, kw_only=True)
class TrackingRequest:
    """What `tracking` was asked for, once it is checked: see its arguments."""

    folder: Path
    tensorboard_folder: Path
    name: str
    config: Mapping[str, Any]
    group: str | None
    every_batches: int | None
    log_model: bool
    profiled: tuple[int, int] | None
    hyperparameters: Mapping[str, Any] | None
    objective: tuple[str, str] | None
    save_code: bool
    verbose: int
    telemetry: Any = None


@dataclass(frozen=True, kw_only=True)
class TrackerKind:
    """A tracker that can be asked for by its name.

    Attributes:
        folder: Returns the folder for its files, which has to be writable.
        callbacks: Makes its Keras callbacks.
        options: Those of `every_batches`, `log_model`, `profile_batches` and `telemetry` that it
            has a use for.
        check: Raises `UserError` if the tracker cannot work.
    """

    folder: Callable[[TrackingRequest], Path]
    callbacks: Callable[[TrackingRequest], list[Any]]
    options: frozenset[str] = frozenset()
    check: Callable[[], object] = lambda: None


def _wandb(asked: TrackingRequest) -> list[Any]:
    from .wandb_tracker import WandbBatches, WandbTracker

    tracker = WandbTracker(
        asked.folder,
        config={**asked.config, **(asked.hyperparameters or {})},
        group=asked.group,
        name=asked.name,
        job_type="train" if asked.hyperparameters is None else "trial",
        objective=asked.objective,
        log_model=asked.log_model,
        save_code=asked.save_code,
        verbose=asked.verbose,
    )
    callbacks: list[Any] = [tracker]
    if asked.every_batches is not None:
        callbacks.append(WandbBatches(asked.every_batches, tracker.record))
    if asked.telemetry is not None:
        from .telemetry_trackers import WandbTelemetry

        callbacks.append(WandbTelemetry(asked.telemetry, tracker.record))
    return callbacks


def _tensorboard(asked: TrackingRequest) -> list[Any]:
    from .profile_steps import ProfileSteps
    from .tensorboard_tracker import TensorBoardBatches, TensorBoardTracker

    folder = asked.tensorboard_folder
    values = asked.config if asked.hyperparameters is None else asked.hyperparameters
    callbacks: list[Any] = [TensorBoardTracker(folder, hyperparameters=values, trial=asked.name)]
    if asked.every_batches is not None:
        callbacks.append(TensorBoardBatches(folder, asked.every_batches))
    if asked.profiled is not None:
        first, last = asked.profiled
        callbacks.append(ProfileSteps(folder, first=first, last=last))
    if asked.telemetry is not None:
        from .telemetry_trackers import TensorBoardTelemetry

        callbacks.append(TensorBoardTelemetry(asked.telemetry, folder))
    return callbacks


def _csv(asked: TrackingRequest) -> list[Any]:
    from ..callbacks import SaveTrainingData

    asked.folder.mkdir(parents=True, exist_ok=True)
    return [SaveTrainingData(asked.folder / "history.csv", verbose=0)]


TRACKER_KINDS = {
    "wandb": TrackerKind(
        folder=lambda asked: asked.folder / "wandb",
        callbacks=_wandb,
        options=frozenset({"every_batches", "log_model", "telemetry"}),
        check=asked_mode,
    ),
    "tensorboard": TrackerKind(
        folder=lambda asked: asked.tensorboard_folder,
        callbacks=_tensorboard,
        options=frozenset({"every_batches", "profile_batches", "telemetry"}),
    ),
    "csv": TrackerKind(folder=lambda asked: asked.folder, callbacks=_csv),
}
