"""`tracking`: make trackers from their names.

The trackers are imported inside the functions: an invalid name or folder is reported before wandb,
TensorFlow and TensorBoard are imported.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import local_path, positive_integer
from ..errors import UserError
from ..files import check_writable_folder

if TYPE_CHECKING:
    import keras

    from ..callbacks import TrainingTelemetry
    from .tracker import Tracker

TRACKERS = ("wandb", "tensorboard", "none")
_WANDB_MODES = ("online", "offline", "shared", "disabled", "run", "dryrun", "")


def tracker_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested trackers, each once, in the order of `TRACKERS`.

    Args:
        names: Names, or comma-separated names, or both; `None` or `"none"` for no tracker.

    Raises:
        UserError: A name is unknown, or `"none"` is given with another name.

    Examples:
        >>> tracker_names(["tensorboard,wandb", "wandb"])
        ('wandb', 'tensorboard')
    """
    parts = names if isinstance(names, list | tuple) else [] if names is None else [names]
    requested = {name.strip() for part in parts for name in str(part).split(",")} - {""}
    unknown = sorted(requested - set(TRACKERS))
    if unknown:
        raise UserError(f"unknown tracker {', '.join(unknown)}: known are {', '.join(TRACKERS)}")
    if "none" in requested and len(requested) > 1:
        others = ", ".join(sorted(requested - {"none"}))
        raise UserError(
            f"received the tracker 'none' together with {others}: leave out 'none', or {others}"
        )
    return tuple(name for name in TRACKERS if name in requested - {"none"})


def check_trackers(trackers: Collection[str]) -> None:
    """Check, before wandb is imported, that trackers can start.

    Raises:
        UserError: `WANDB_MODE` is invalid.
    """
    mode = os.environ.get("WANDB_MODE", "")
    if "wandb" in trackers and mode not in _WANDB_MODES:
        raise UserError(
            f"WANDB_MODE has to be one of {', '.join(_WANDB_MODES[:4])}; received {mode}: change or"
            " unset the variable"
        )


def tracking(
    *names: str,
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    group: str | None = None,
    run_name: str | None = None,
    every_batches: int | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    tensorboard_folder: str | os.PathLike[str] | None = None,
    telemetry: "TrainingTelemetry | None" = None,
    verbose: int = 1,
) -> list["keras.callbacks.Callback"]:
    """Make the Keras callbacks that track a run with W&B or TensorBoard.

    Put the trackers last in the list of callbacks: values that earlier callbacks add to `logs` are
    tracked, too, such as images per second (`PrintThroughput`) and batch norm gaps
    (`BatchNormMonitor`). Every value is written once per epoch. A tracker that fails warns once,
    and training continues without the tracker.

    * `"wandb"`: Weights & Biases, in `<folder>/wandb`. The run is
      online if there is an account (`WANDB_API_KEY`, `wandb login`) and `WANDB_MODE` allows an
      online run, otherwise offline. wandb never prompts. The command line, environment, git state,
      packages, console and code are not recorded. A run that is already active is used, and not
      closed.
    * `"tensorboard"`: scalars, graph and hyperparameters, in `<folder>/tensorboard`.
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
        hyperparameters: Hyperparameters of a trial; by default `config`.
        tensorboard_folder: TensorBoard's folder; by default `<folder>/tensorboard`.
        telemetry: A `kdist.callbacks.TrainingTelemetry`, whose norms and histograms the trackers
            write by step. Put it before the trackers in the list of callbacks.
        verbose: 0 prints nothing; 1 prints the URL or folder of a W&B run at its end.

    Returns:
        The callbacks; an empty list for no trackers.

    Raises:
        UserError: A tracker is unknown, `every_batches` is out of range, a folder cannot be
            written, or `WANDB_MODE` is invalid.

    Examples:
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
    path = Path(local_path("folder", folder))
    folders = {name: path / name for name in chosen}
    if tensorboard_folder is not None and "tensorboard" in chosen:
        folders["tensorboard"] = Path(local_path("tensorboard_folder", tensorboard_folder))
    for tracker_folder in folders.values():
        check_writable_folder(tracker_folder, option="folder")
    check_trackers(chosen)
    options: dict[str, Any] = {
        "settings": {key: value for key, value in config.items() if not key.endswith("_dir")},
        "hyperparameters": hyperparameters,
        "group": group,
        "name": run_name or path.resolve().name,
        "telemetry": telemetry,
        "verbose": verbose,
    }
    trackers: list[Tracker] = []
    if "wandb" in chosen:
        from .wandb_tracker import WandbTracker

        trackers.append(WandbTracker(folders["wandb"], **options))
    if "tensorboard" in chosen:
        from .tensorboard_tracker import TensorBoardTracker

        trackers.append(TensorBoardTracker(folders["tensorboard"], **options))
    if every_batches is None:
        return [*trackers]
    from .tracker import BatchTracking

    return [*trackers, BatchTracking(every_batches, trackers)]
