"""`tracking`: names of trackers in, Keras callbacks out."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import positive_integer
from ..errors import UserError
from .folders import check_folder
from .names import check_options, first_and_last_step, tracker_names
from .shown_settings import shown_settings
from .wandb_account import asked_mode

if TYPE_CHECKING:
    import keras

# The trackers are imported inside the function: a wrong name or folder is told before wandb,
# TensorFlow and TensorBoard are imported.


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
    verbose: int = 1,
) -> list["keras.callbacks.Callback"]:
    """Keras callbacks by which one run is watched. Put them last in the list.

    What the callbacks before them add to `logs` is tracked too: images a second
    (`PrintThroughput`), batch-norm gaps (`BatchNormMonitor`), the noise scale
    (`GradientNoiseScale`). Every value is written once an epoch. A tracker that fails is a warning,
    once, and training goes on without it.

    * `"wandb"`: Weights & Biases, through wandb's own callbacks, in `<folder>/wandb`. Online where
      there is an account (`WANDB_API_KEY`, `wandb login`) and `WANDB_MODE` does not say otherwise,
      else offline; nobody is ever asked. Neither the command line nor the environment, git state,
      packages or console are recorded, and code only with `save_code`. A run that is active
      already is taken, and left open.
    * `"tensorboard"`: scalars, graph and hyperparameters, in `<folder>/tensorboard`.
    * `"csv"`: `<folder>/history.csv`.
    * `"none"`: nothing.

    Args:
        names: Names, or names between commas.
        folder: The run's folder; it is made where it is missing.
        config: What is shown as the run's settings. Of `TrainConfig`'s, paths are left out.
        group: Under which W&B groups runs, such as the trials of a search.
        run_name: What the run is called; `folder`'s name by default.
        every_batches: Also write the metrics each time so many steps have been trained. Keras then
            waits for the metrics after every execution.
        log_model: Also keep the model of the best epoch as a W&B artifact.
        profile_batches: First and last step, counted from 1, to profile for TensorBoard.
        hyperparameters: Those of a trial; `config` takes their place where they are missing.
        objective: A value of `logs` and `"max"` or `"min"`: its best so far is the W&B run's
            summary `objective`.
        save_code: Also send the main script to W&B.
        tensorboard_folder: TensorBoard's folder, if not the one in `folder`.
        verbose: 0 does not say where the W&B run is.

    Raises:
        UserError: An unknown tracker, a value out of range, an option without its tracker, a
            folder that cannot be written, or a `WANDB_MODE` that wandb does not know.

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
            "every_batches", every_batches, mend="pass steps between two writings"
        )
    check_options(
        chosen, every_batches=every_batches, log_model=log_model, profile_batches=profile_batches
    )
    if objective is not None and (len(objective) != 2 or objective[1] not in ("max", "min")):
        raise UserError(
            f'objective is a value\'s name and "max" or "min", received {objective!r}: pass for'
            ' example ("val_accuracy", "max")'
        )
    path = Path(folder)
    shown = shown_settings(config)
    name = run_name or path.resolve().name
    board = path / "tensorboard" if tensorboard_folder is None else Path(tensorboard_folder)
    folders = {"wandb": path / "wandb", "tensorboard": board, "csv": path}
    if "wandb" in chosen:
        asked_mode()
    for tracker in chosen:
        check_folder(folders[tracker], tracker)
    callbacks: list[Any] = []
    if "wandb" in chosen:
        from .wandb_tracker import WandbBatches, WandbTracker

        callbacks.append(
            WandbTracker(
                path,
                config=shown | dict(hyperparameters or {}),
                group=group,
                name=name,
                job_type="train" if hyperparameters is None else "trial",
                objective=objective,
                log_model=log_model,
                save_code=save_code,
                verbose=verbose,
            )
        )
        callbacks += [WandbBatches(every_batches)] if every_batches is not None else []
    if "tensorboard" in chosen:
        from .profile_steps import ProfileSteps
        from .tensorboard_tracker import TensorBoardBatches, TensorBoardTracker

        values = shown if hyperparameters is None else hyperparameters
        callbacks.append(TensorBoardTracker(board, hyperparameters=values, trial=name))
        callbacks += [TensorBoardBatches(board, every_batches)] if every_batches is not None else []
        if steps is not None:
            callbacks.append(ProfileSteps(board, first=steps[0], last=steps[1]))
    if "csv" in chosen:
        from ..callbacks import SaveTrainingData

        path.mkdir(parents=True, exist_ok=True)
        callbacks.append(SaveTrainingData(path / "history.csv", verbose=0))
    return callbacks
