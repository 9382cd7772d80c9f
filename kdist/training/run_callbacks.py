"""The callbacks of a run, in calling order."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import keras

from ..callbacks import (
    Checkpoint,
    PrintThroughput,
    PrintTotalTime,
    SaveTrainingData,
    StopAtAccuracy,
    StopAtNonFinite,
    TrainingTelemetry,
)
from ..callbacks.print_throughput import counts_images
from ..signals import Received
from ..tracking.factory import tracking
from ..tracking.tracker import Tracker
from .config import SearchTrial, TrainConfig, TrainPlan
from .folder import RunFolder
from .model import RunParts
from .progress import make_progress
from .settings import model_name


class RunCheckpoint(Checkpoint):
    """Saves a run of `kdist train` as it proceeds, and continues a resumed run.

    After a signal that the run holds, the callback saves the training at the end of the step.

    Args:
        config: The settings; `checkpoint_every` is not `None`.
        folder: The run folder.
        data: Description of the data, or `None`. A resumed run must have the same description.
        held: The signals that the run holds.
        begin: Called when the run is certain to be trained, before anything is written.
        verbose: 0 prints only failures.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        data: str | None,
        *,
        held: Received,
        begin: Callable[[], None],
        verbose: int,
    ) -> None:
        super().__init__(
            folder.checkpoints,
            every_seconds=config.checkpoint_every,
            keep=config.keep,
            resume="auto" if folder.is_resumed else "never",
            preemption=False,
            verbose=verbose,
        )
        self.options = dataclasses.replace(
            self.options,
            held=held,
            data=data,
            any_rate=True,  # more epochs change the schedule; the settings were compared
        )
        self._begin = begin

    def fit_begins(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Find the checkpoint to resume, restore it, and call `begin`."""
        super().fit_begins(callbacks)
        self._begin()

    def fit_ended(self) -> None:
        """Release the folder, and report the save below an unfinished progress bar."""
        if self._lines and self.params.get("verbose") == 1:
            print()
        super().fit_ended()


def make_checkpoint(
    config: TrainConfig,
    parts: RunParts,
    folder: RunFolder,
    *,
    held: Received,
    verbose: int,
) -> RunCheckpoint | None:
    """Make the callback that saves a run; `None` without `checkpoint_every`.

    When training begins, the callback also calls `write_settings`.

    Args:
        config: The settings.
        parts: The run's model and data.
        folder: The run folder.
        held: The signals that the run holds.
        verbose: As in `fit`; 0 prints only failures.
    """
    if config.checkpoint_every is None:
        return None
    return RunCheckpoint(
        config,
        folder,
        parts.describe_data(),
        held=held,
        begin=lambda: write_settings(config, parts.plan, folder),
        verbose=min(verbose, 1),
    )


def write_settings(config: TrainConfig, plan: TrainPlan, folder: RunFolder) -> None:
    """Write the run's settings, and remove the previous result until the run ends.

    Raises:
        UserError: A file cannot be written.
    """
    folder.remove_summary()
    if config.checkpoint_every is not None and not folder.is_resumed:
        folder.write_json("plan.json", dataclasses.asdict(plan))
    folder.write_json("config.json", config.used())


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """The callbacks of a run. Four of them are also available by name.

    Attributes:
        ordered: All callbacks, in order.
        stop: Stops the run at its target.
        finite: Stops the run when its loss is not finite.
        history: Records the values of every epoch.
        total_time: Counts the seconds, including the time before the run was resumed.
    """

    ordered: Sequence[keras.callbacks.Callback]
    stop: StopAtAccuracy
    finite: StopAtNonFinite
    history: keras.callbacks.History
    total_time: PrintTotalTime


def make_callbacks(
    config: TrainConfig,
    parts: RunParts,
    folder: RunFolder,
    *,
    more: Sequence[keras.callbacks.Callback] = (),
    verbose: int = 1,
    trial: SearchTrial | None = None,
) -> RunCallbacks:
    """Make the callbacks of a run.

    Args:
        config: The settings.
        parts: The run's model and data. The trackers show its batch and learning rate.
        folder: The run folder.
        more: The caller's own callbacks.
        verbose: As in `fit`; 0 also silences these callbacks.
        trial: The place of the run in a search.

    Raises:
        UserError: A tracker cannot be used.
    """
    line = min(verbose, 1)
    stop, history = _stop(config, trial, verbose=line), keras.callbacks.History()
    total_time = PrintTotalTime(verbose=0)
    finite = StopAtNonFinite(verbose=line)
    telemetry, images = None, _images_to_tell(parts)
    if config.telemetry is not None:
        telemetry = TrainingTelemetry(every_steps=config.telemetry, verbose=line)
    ordered = [
        # First, so that all callbacks below see the metrics of the averaged weights.
        *([keras.callbacks.SwapEMAWeights()] if config.ema_momentum is not None else []),
        finite,
        PrintThroughput(images, verbose=0),
        *([telemetry] if telemetry is not None else []),
        stop,
        total_time,
        *more,
        *make_progress(verbose, total_time),  # shows the measurements above
        history,  # below the callbacks that add to `logs`
        SaveTrainingData(folder.history, verbose=0),
        # Last, to see all of `logs`.
        *(
            _trackers(config, parts, folder, telemetry, trial, verbose=verbose)
            if folder.is_written
            else ()
        ),
    ]
    return RunCallbacks(
        ordered=ordered, stop=stop, finite=finite, history=history, total_time=total_time
    )


def _images_to_tell(parts: RunParts) -> int | None:
    """Return the images per epoch, unless the model's train_step counts them."""
    return None if counts_images(parts.model) else parts.training_images


def _stop(config: TrainConfig, trial: SearchTrial | None, *, verbose: int) -> StopAtAccuracy:
    has_target = config.model is None or config.monitor is not None
    if not has_target or (trial is not None and not trial.has_target):
        budget = math.inf if config.time_budget is None else config.time_budget
        return StopAtAccuracy(None, time_budget=budget, verbose=verbose)
    return StopAtAccuracy(
        {config.monitor or "val_accuracy": config.target_accuracy},
        config.patience,
        validation_freq=1 if config.validate else config.epochs + 1,  # never
        time_budget=config.time_budget,
        verbose=verbose,
    )


def _trackers(
    config: TrainConfig,
    parts: RunParts,
    folder: RunFolder,
    telemetry: TrainingTelemetry | None,
    trial: SearchTrial | None,
    *,
    verbose: int,
) -> list[keras.callbacks.Callback]:
    plan, model = parts.plan, parts.model
    own = {} if config.model is None else {"model": model_name(config.to_dict())}
    trackers = tracking(
        *config.trackers,
        folder=folder.path,
        config=config.shareable()
        | own
        | {
            "replicas": plan.replicas,
            "global_batch": plan.global_batch,
            "learning_rate": plan.learning_rate,
            "parameters": model.count_params() if model.built else None,
            "xla": bool(model.jit_compile),
        },
        every_batches=config.track_batches,
        log_model=config.log_model,
        tensorboard_folder=config.log_dir,
        telemetry=telemetry if config.trackers else None,
        verbose=verbose,
        **({} if trial is None else trial.tracked()),
    )
    for tracker in trackers:
        if isinstance(tracker, Tracker):
            tracker.continues = folder.is_resumed
    return trackers
