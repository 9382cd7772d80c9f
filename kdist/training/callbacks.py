"""Make the callbacks of a run, in the order in which Keras calls them."""

import dataclasses
import math
from collections.abc import Sequence

import keras

from ..callbacks import (
    GradientNoiseScale,
    PrintThroughput,
    PrintTotalTime,
    SaveTrainingData,
    StopAtAccuracy,
    StopAtNonFinite,
    TrainingTelemetry,
)
from ..callbacks.print_throughput import counts_images
from ..runs.run_folder import RunFolder
from ..tracking.factory import TRACKER_KINDS, tracking
from ..tracking.tracker import Tracker
from .config import TrainConfig
from .model_name import model_name
from .parts import RunParts
from .progress import make_progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """The callbacks of a run, four of them by name.

    Attributes:
        ordered: All callbacks, in order.
        stop: Stops the run at its target.
        finite: Stops the run when its loss is not finite.
        history: Records the values of every epoch.
        total_time: Counts the seconds, those before the run was resumed too.
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
) -> RunCallbacks:
    """Make the callbacks of a run.

    Args:
        config: The settings.
        parts: What the run trains; the trackers show its batch and learning rate.
        folder: The run folder.
        more: The caller's own callbacks.
        verbose: As in `fit`; 0 silences these callbacks, too.

    Raises:
        UserError: A tracker cannot be used.
    """
    line = min(verbose, 1)
    stop, history = _stop(config, verbose=line), keras.callbacks.History()
    total_time = PrintTotalTime(verbose=0)
    finite = StopAtNonFinite(verbose=line)
    telemetry, images = None, _images_to_tell(parts)
    if config.telemetry is not None:
        telemetry = TrainingTelemetry(every_steps=config.telemetry, verbose=line)
    ordered = [
        # First, so that the others see the metrics of the averaged weights.
        *([keras.callbacks.SwapEMAWeights()] if config.ema_momentum is not None else []),
        finite,
        PrintThroughput(images, verbose=0),
        *([GradientNoiseScale(verbose=0)] if config.noise_scale else []),
        *([telemetry] if telemetry is not None else []),
        stop,
        total_time,
        *more,
        *make_progress(verbose, total_time),  # it shows what those above measure
        history,  # after the callbacks above, to record what they add to `logs`
        SaveTrainingData(folder.history, verbose=0),
        # Last, to see all of `logs`.
        *(
            _trackers(config, parts, folder, telemetry, verbose=verbose)
            if folder.is_written
            else ()
        ),
    ]
    return RunCallbacks(
        ordered=ordered, stop=stop, finite=finite, history=history, total_time=total_time
    )


def _images_to_tell(parts: RunParts) -> int | None:
    """The images of an epoch, where a model with a train_step of its own does not count them."""
    return None if counts_images(parts.model) else parts.training_images


def _stop(config: TrainConfig, *, verbose: int) -> StopAtAccuracy:
    if config.model is not None and config.monitor is None:
        budget = math.inf if config.time_budget is None else config.time_budget
        return StopAtAccuracy(None, time_budget=budget, verbose=verbose)
    targets = {config.monitor or "val_accuracy": config.target_accuracy}
    if config.target_train_accuracy is not None:
        targets["accuracy"] = config.target_train_accuracy
    return StopAtAccuracy(
        targets,
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
    *,
    verbose: int,
) -> list[keras.callbacks.Callback]:
    plan, model = parts.plan, parts.model
    own = {} if config.model is None else {"model": model_name(config.to_dict())}
    shows_it = any("telemetry" in TRACKER_KINDS[name].options for name in config.trackers)
    trackers = tracking(
        *(name for name in config.trackers if name != "csv"),  # which a run has anyway
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
        profile_batches=config.profile_batches,
        tensorboard_folder=config.log_dir,
        telemetry=telemetry if shows_it else None,
        verbose=verbose,
    )
    for tracker in trackers:
        if isinstance(tracker, Tracker):
            tracker.continues = folder.is_resumed
    return trackers
