"""Make trackers from their names with `tracking`; names and options are checked before imports."""

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import positive_integer
from ..errors import UserError
from ..files import check_writable_folder
from ..versions import require

if TYPE_CHECKING:
    import keras

    from ..callbacks import TrainingTelemetry
    from .tracker import Tracker

# The trackers are imported inside the functions: an invalid name or folder is reported before
# wandb, TensorFlow and TensorBoard are imported.


TRACKERS = ("wandb", "tensorboard", "mlflow", "none")

_REAL = TRACKERS[:-1]
# The trackers that use an option. Some options are listed twice: `track_batches` is the setting for
# `every_batches`.
_NEEDS = {
    "every_batches": _REAL,
    "track_batches": _REAL,
    "telemetry": _REAL,
    "log_model": ("wandb",),
}
_WANDB_MODES = ("", "online", "offline", "shared", "disabled")
_OLDER_MODES = {"run": "online", "dryrun": "offline"}


def tracker_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested trackers, each once, in the order of `TRACKERS`.

    Args:
        names: Names, or comma-separated names, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: A name is unknown, or `"none"` is given with another name.

    Example:
        >>> tracker_names(["tensorboard,wandb", "wandb"])
        ('wandb', 'tensorboard')
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


def check_options(trackers: Collection[str], **options: object) -> None:
    """Reject an option whose tracker is not requested.

    Args:
        trackers: The requested trackers.
        options: `every_batches`, `log_model`, `telemetry`, or the names of their settings;
            `None` and `False` mean that an option is not used.

    Raises:
        UserError: An option would have no effect.
    """
    for name, value in options.items():
        if value not in (None, False) and not set(_NEEDS[name]) & set(trackers):
            needed = " or ".join(_NEEDS[name])
            raise UserError(f"{name}={value} does nothing without {needed}: add it to the trackers")


def asked_mode(environment: Mapping[str, str] = os.environ) -> str:
    """Return the mode that `WANDB_MODE` requests; `""` if it is not set.

    Raises:
        UserError: The value is not a mode of wandb.
    """
    asked = environment.get("WANDB_MODE", "")
    mode = _OLDER_MODES.get(asked, asked)
    if mode not in _WANDB_MODES:
        raise UserError(
            f"WANDB_MODE has to be one of {', '.join(_WANDB_MODES[1:])}; received {asked}: change"
            " or unset it"
        )
    return mode


def check_trackers(trackers: Collection[str]) -> None:
    """Check, before their packages are imported, that trackers can start.

    Raises:
        UserError: `WANDB_MODE` is invalid, or MLflow is not installed.
    """
    if "wandb" in trackers:
        asked_mode()
    if "mlflow" in trackers:
        require("mlflow")


def tracking(
    *names: str,
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    group: str | None = None,
    run_name: str | None = None,
    every_batches: int | None = None,
    log_model: bool = False,
    hyperparameters: Mapping[str, Any] | None = None,
    objective: tuple[str, str] | None = None,
    tensorboard_folder: str | os.PathLike[str] | None = None,
    telemetry: "TrainingTelemetry | None" = None,
    verbose: int = 1,
) -> list["keras.callbacks.Callback"]:
    """Make the Keras callbacks that track a run with W&B, TensorBoard or MLflow.

    Put the trackers last in the list of callbacks: values that earlier callbacks add to `logs` are
    tracked, too, such as images per second (`PrintThroughput`) and batch norm gaps
    (`BatchNormMonitor`). Every value is written once per epoch. A tracker that fails warns once,
    and training continues without the tracker.

    * `"wandb"`: Weights & Biases, with wandb's own callbacks, in `<folder>/wandb`. The run is
      online if there is an account (`WANDB_API_KEY`, `wandb login`) and `WANDB_MODE` allows an
      online run, otherwise offline. wandb never prompts. The command line, environment, git state,
      packages, console and code are not recorded. A run that is already active is used, and not
      closed.
    * `"tensorboard"`: scalars, graph and hyperparameters, in `<folder>/tensorboard`.
    * `"mlflow"`: parameters and metrics, on the server or in the database that
      `MLFLOW_TRACKING_URI` names; MLflow's default is `mlflow.db` in the working directory. It
      needs `pip install 'kdist[mlflow]'`.
    * `"none"`: nothing.

    Args:
        names: Names, or comma-separated names.
        folder: The run's folder; created if it is missing.
        config: Settings to show for the run. Trackers may publish them, so do not include
            secrets. Names that end in `_dir` are dropped, as a path may contain a user's name.
        group: Group of the run, such as the name of a search.
        run_name: Name of the run; by default the name of `folder`.
        every_batches: Steps between two additional writes of the metrics; `None` to write them once
            per epoch only. With a number, Keras waits for the metrics after every execution.
        log_model: Also save the model of the best epoch, `best_epoch`, as a W&B artifact.
        hyperparameters: Hyperparameters of a trial; by default `config`.
        objective: Name of a value in `logs`, and `"max"` or `"min"`. The best value so far is
            tracked as `objective`, and decides `best_epoch`.
        tensorboard_folder: TensorBoard's folder; by default `<folder>/tensorboard`.
        telemetry: A `kdist.callbacks.TrainingTelemetry` that is also in the list of callbacks,
            before the trackers, which get its norms and, but for MLflow, histograms, by step.
        verbose: 0 does not print where the run is.

    Returns:
        The callbacks; an empty list for no trackers.

    Raises:
        UserError: A tracker is unknown, a value is out of range, an option is given without its
            tracker, a folder cannot be written, `WANDB_MODE` is invalid, or MLflow is not
            installed.

    Example:
        ```python
        trackers = tracking("wandb", "tensorboard", folder="runs/1", config={"width": 10})
        model.fit(train, epochs=3, callbacks=[PrintThroughput(), *trackers])
        ```
    """
    chosen = tracker_names(names)
    if every_batches is not None:
        every_batches = positive_integer(
            "every_batches", every_batches, hint="pass the number of steps between two writes"
        )
    check_options(chosen, every_batches=every_batches, log_model=log_model)
    if telemetry is not None:
        check_options(chosen, telemetry="TrainingTelemetry")
    if objective is not None and (len(objective) != 2 or objective[1] not in ("max", "min")):
        raise UserError(
            f'objective has to be a name and "max" or "min", received {objective!r}: pass for'
            ' example ("val_accuracy", "max")'
        )
    path = Path(folder)
    folders = {name: path / name for name in chosen}
    if tensorboard_folder is not None and "tensorboard" in chosen:
        folders["tensorboard"] = Path(tensorboard_folder)
    for tracker_folder in folders.values():
        check_writable_folder(tracker_folder, option="folder")
    check_trackers(chosen)
    options: dict[str, Any] = {
        "settings": {key: value for key, value in config.items() if not key.endswith("_dir")},
        "hyperparameters": hyperparameters,
        "group": group,
        "name": run_name or path.resolve().name,
        "objective": objective,
        "telemetry": telemetry,
        "verbose": verbose,
    }
    trackers: list[Tracker] = []
    if "wandb" in chosen:
        from .wandb_tracker import WandbTracker

        trackers.append(WandbTracker(folders["wandb"], log_model=log_model, **options))
    if "tensorboard" in chosen:
        from .tensorboard_tracker import TensorBoardTracker

        trackers.append(TensorBoardTracker(folders["tensorboard"], **options))
    if "mlflow" in chosen:
        from .mlflow_tracker import MlflowTracker

        trackers.append(MlflowTracker(folders["mlflow"], **options))
    if every_batches is None:
        return [*trackers]
    from .tracker import BatchTracking

    return [*trackers, BatchTracking(every_batches, trackers)]
