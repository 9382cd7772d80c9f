"""The trackers by their names: checked before they are imported, and made by `tracking`."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import as_integer, positive_integer
from ..errors import UserError, error_text
from .wandb_account import asked_mode

if TYPE_CHECKING:
    import keras

    from ..callbacks import TrainingTelemetry

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
        from .wandb_tracker import WandbTelemetry

        callbacks.append(WandbTelemetry(asked.telemetry, tracker.record))
    return callbacks


def _tensorboard(asked: TrackingRequest) -> list[Any]:
    from .tensorboard_tracker import ProfileSteps, TensorBoardBatches, TensorBoardTracker

    folder = asked.tensorboard_folder
    values = asked.config if asked.hyperparameters is None else asked.hyperparameters
    callbacks: list[Any] = [TensorBoardTracker(folder, hyperparameters=values, trial=asked.name)]
    if asked.every_batches is not None:
        callbacks.append(TensorBoardBatches(folder, asked.every_batches))
    if asked.profiled is not None:
        first, last = asked.profiled
        callbacks.append(ProfileSteps(folder, first=first, last=last))
    if asked.telemetry is not None:
        from .tensorboard_tracker import TensorBoardTelemetry

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


TRACKERS = (*TRACKER_KINDS, "none")

# Settings by the names of the options that they are for.
_OPTIONS = {"track_batches": "every_batches"}


def tracker_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested trackers, each once, in the order of `TRACKERS`.

    Args:
        names: Names, or comma-separated names, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: A name is unknown, or `"none"` is given with another name.

    Example:
        >>> tracker_names(["csv,wandb", "wandb"])
        ('wandb', 'csv')
    """
    parts: list[Any] = []
    if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
        parts += [] if names is None else [names]
    else:
        parts += names
    if not all(isinstance(part, str) for part in parts):
        raise UserError(f"track takes names ({', '.join(TRACKERS)}), received {names!r}")
    asked = {name.strip() for part in parts for name in part.split(",")} - {""}
    unknown = sorted(asked - set(TRACKERS))
    if unknown:
        raise UserError(f"unknown tracker {', '.join(unknown)}: known are {', '.join(TRACKERS)}")
    if "none" in asked and len(asked) > 1:
        others = ", ".join(sorted(asked - {"none"}))
        raise UserError(f"received the tracker none together with {others}: remove one of them")
    return tuple(name for name in TRACKERS if name in asked - {"none"})


def first_and_last_step(steps: str | Iterable[int] | None) -> tuple[int, int] | None:
    """Return the first and last training step to profile, counted from 1.

    Args:
        steps: `"10,20"`, `(10, 20)`, or one step; `None` for none.

    Raises:
        UserError: `steps` is anything else, or the steps are out of order.

    Example:
        >>> first_and_last_step("10,20")
        (10, 20)
    """
    if steps is None:
        return None
    given = steps.split(",") if isinstance(steps, str) else steps
    parts = list(given) if isinstance(given, Iterable) else [given]
    try:
        numbers = [int(n) if isinstance(n, str) else as_integer(n) for n in parts]
    except ValueError:
        numbers = []
    known = [number for number in numbers if number is not None]
    if len(known) != len(parts) or len(known) not in (1, 2):
        raise UserError(
            f"profile_batches has to be the first and the last step to profile, such as 10,20;"
            f" received {steps!r}"
        )
    first, last = known[0], known[-1]
    if not 1 <= first <= last:
        raise UserError(
            "profile_batches counts steps from 1, and the first cannot be after the last; received"
            f" {steps!r}"
        )
    return first, last


def check_options(trackers: Collection[str], **options: object) -> None:
    """Reject an option whose tracker is not requested.

    Args:
        trackers: The requested trackers.
        options: `every_batches`, `log_model`, `profile_batches`, or the names of their settings;
            `None` and `False` mean that an option is not used.

    Raises:
        UserError: An option would have no effect.
    """
    for name, value in options.items():
        option = _OPTIONS.get(name, name)
        needed = [kind for kind, one in TRACKER_KINDS.items() if option in one.options]
        if value not in (None, False) and not set(needed) & set(trackers):
            raise UserError(
                f"{name}={value} does nothing without {' or '.join(needed)}: add it to the trackers"
            )


def check_folder(folder: Path, tracker: str) -> None:
    """Reject a folder that cannot be created or written, without creating it.

    Args:
        folder: The folder; it need not exist.
        tracker: The tracker whose files will be written there.

    Raises:
        UserError: The folder, or its nearest existing parent, is not a folder or is not writable.
    """
    existing = folder.absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        problem = None if existing.is_dir() else f"{existing} is not a folder"
    except OSError as error:
        problem = f"{existing}: {error_text(error)}"
    if problem is None and not os.access(existing, os.W_OK | os.X_OK):
        problem = f"{existing} is not writable"
    if problem is not None:
        raise UserError(
            f"cannot write the files of {tracker} into {folder}: {problem}; choose another folder"
        )


def tracking(
    *names: str,
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    group: str | None = None,
    run_name: str | None = None,
    every_batches: int | None = None,
    log_model: bool = False,
    profile_batches: str | Iterable[int] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    objective: tuple[str, str] | None = None,
    save_code: bool = False,
    tensorboard_folder: str | os.PathLike[str] | None = None,
    telemetry: "TrainingTelemetry | None" = None,
    verbose: int = 1,
) -> list["keras.callbacks.Callback"]:
    """Make the Keras callbacks that track a run with W&B, TensorBoard or a CSV file.

    Put them last in the list of callbacks: values that earlier callbacks add to `logs` are tracked,
    too, such as images per second (`PrintThroughput`), batch norm gaps (`BatchNormMonitor`) and the
    noise scale (`GradientNoiseScale`). Every value is written once per epoch. If a tracker fails,
    it warns once, and training continues without it.

    * `"wandb"`: Weights & Biases, with wandb's own callbacks, in `<folder>/wandb`. The run is
      online if there is an account (`WANDB_API_KEY`, `wandb login`) and `WANDB_MODE` allows it,
      otherwise offline; it never prompts. The command line, environment, git state, packages and
      console are not recorded, and code only with `save_code`. A run that is already active is
      used, and not closed.
    * `"tensorboard"`: scalars, graph and hyperparameters, in `<folder>/tensorboard`.
    * `"csv"`: `<folder>/history.csv`.
    * `"none"`: nothing.

    Args:
        names: Names, or comma-separated names.
        folder: The run's folder; it is created if it is missing.
        config: Settings to show for the run. Trackers may publish them, so do not include
            secrets. Names that end in `_dir` are dropped, as a path may contain a user's name.
        group: W&B group of the run, such as the name of a search.
        run_name: Name of the run; by default the name of `folder`.
        every_batches: Also write the metrics every this many steps. Keras then waits for the
            metrics after every execution.
        log_model: Also save the model of the best epoch as a W&B artifact.
        profile_batches: First and last step, counted from 1, to profile for TensorBoard.
        hyperparameters: Hyperparameters of a trial; by default `config`.
        objective: Name of a value in `logs`, and `"max"` or `"min"`. Its best value so far is
            `objective` in the W&B run's summary.
        save_code: Also upload the main script to W&B.
        tensorboard_folder: TensorBoard's folder; by default `<folder>/tensorboard`.
        telemetry: A `kdist.callbacks.TrainingTelemetry` that is also in the list of callbacks,
            before the trackers. W&B and TensorBoard get its histograms and norms, by step.
        verbose: 0 does not print where the W&B run is.

    Returns:
        The callbacks; an empty list for no trackers.

    Raises:
        UserError: A tracker is unknown, a value is out of range, an option is given without its
            tracker, a folder cannot be written, or `WANDB_MODE` is invalid.

    Example:
        ```python
        trackers = tracking("wandb", "tensorboard", folder="runs/1", config={"width": 10})
        model.fit(train, epochs=3, callbacks=[PrintThroughput(), *trackers])
        ```
    """
    chosen = tracker_names(names)
    steps = first_and_last_step(profile_batches)
    if every_batches is not None:
        every_batches = positive_integer(
            "every_batches", every_batches, hint="pass the number of steps between two writes"
        )
    check_options(
        chosen, every_batches=every_batches, log_model=log_model, profile_batches=profile_batches
    )
    if telemetry is not None:
        check_options(chosen, telemetry="TrainingTelemetry")
    if objective is not None and (len(objective) != 2 or objective[1] not in ("max", "min")):
        raise UserError(
            f'objective has to be a name and "max" or "min", received {objective!r}: pass for'
            ' example ("val_accuracy", "max")'
        )
    path = Path(folder)
    board = path / "tensorboard" if tensorboard_folder is None else Path(tensorboard_folder)
    asked = TrackingRequest(
        folder=path,
        tensorboard_folder=board,
        name=run_name or path.resolve().name,
        config={key: value for key, value in config.items() if not key.endswith("_dir")},
        group=group,
        every_batches=every_batches,
        log_model=log_model,
        profiled=steps,
        hyperparameters=hyperparameters,
        objective=objective,
        save_code=save_code,
        verbose=verbose,
        telemetry=telemetry,
    )
    for tracker in chosen:
        TRACKER_KINDS[tracker].check()
        check_folder(TRACKER_KINDS[tracker].folder(asked), tracker)
    return [one for tracker in chosen for one in TRACKER_KINDS[tracker].callbacks(asked)]
