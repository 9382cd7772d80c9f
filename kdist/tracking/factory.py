"""`tracking`: make Keras callbacks from the names of trackers."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import positive_integer
from ..errors import UserError
from .folders import check_folder
from .names import check_options, first_and_last_step, tracker_names
from .tracker_kinds import TRACKER_KINDS, TrackingRequest

if TYPE_CHECKING:
    import keras

    from ..callbacks import TrainingTelemetry


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
