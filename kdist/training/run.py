"""`train`: one run, from top to bottom.

1. The worker's place, the run folder, the data: mistakes are reported before TensorFlow starts.
2. The strategy and the number format.
3. The plan (batches, learning rate), the model, the arguments of `fit` (`model_and_data.py`).
4. The callbacks in calling order (`run_callbacks.py`, `progress.py`), trackers, checkpoints.
5. `fit`, which a signal or a loss that is not finite ends early.
6. The result: `model.keras`, `summary.json`, and printed lines (`printed_lines.py`).
"""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from ..data import ImageData
from ..data.dataset_choices import DATASETS
from ..data.image_files import SAMPLE
from ..errors import NonFiniteWeightsError, TrainingError, UserError
from ..files import check_writable_folder
from ..processes.process_exit import is_out_of_memory
from ..signals import ReceivedSignals, hold_signals
from ..strategies.hardware import device_names
from ..tracking.make_trackers import check_trackers, tracking
from ..versions import versions
from ..workers.tf_config import WorkerPlace, worker_place
from .config import SearchTrial, TrainConfig, TrainPlan, make_plan, make_resumed_plan
from .printed_lines import format_result, format_settings
from .restart import record_run_for_restart
from .run_folder import OtherWorkersFolder, RunFolder
from .run_record import TrainResult, median_images_per_second
from .settings import model_name
from .user_model.user_functions import explain_user_errors, list_user_files

if TYPE_CHECKING:
    import keras

    from ..callbacks import PrintTotalTime, StopAtAccuracy, StopAtNonFinite, TrainingTelemetry
    from ..strategies.exact_strategy import ExactStrategy
    from .model_and_data import RunParts
    from .run_callbacks import RunCheckpoint

# TensorFlow and Keras, whose import takes seconds, are imported inside the functions.


def train(
    config: TrainConfig,
    *,
    callbacks: Sequence["keras.callbacks.Callback"] = (),
    announce: Callable[[str], None] = print,
    verbose: int = 1,
    resume: bool = False,
    may_use_sample: bool = True,
    trial: SearchTrial | None = None,
) -> TrainResult:
    """Train a network, or your own model, with the settings in `config`.

    Args:
        config: The settings.
        callbacks: Additional Keras callbacks. Values that they add to `logs` are saved in
            `history.csv`.
        announce: Called with lines that describe the run: its settings, and at the end its result.
        verbose: 0 for no progress; 1 for Keras's progress bar on a terminal; 2 for a line per
            epoch, as without a terminal.
        resume: Continue the run in `config.run_dir`, from its newest checkpoint. `resume_run` also
            compares the settings.
        may_use_sample: Train on the embedded sample if Fashion-MNIST cannot be downloaded, and
            announce the sample.
        trial: The place of the run in a search.

    Ctrl-C, SIGTERM and SIGHUP stop training at the end of a batch. The signals wait while files are
    written. A second signal ends the process at once. Signals that the caller handles or ignores
    keep their handlers.

    If `TF_CONFIG` has several workers, as under `kdist launch`, all workers train together. The
    chief prints, and writes the run folder. A signal to any worker ends training on all workers:
    with `checkpoint_every` within about a second, otherwise after the epoch.

    Returns:
        The result. The run folder contains `config.json`, `history.csv` (one row per epoch),
        `summary.json` and `model.keras`, also after a signal. If the loss was not finite, no model
        is saved.

    Raises:
        UserError: Settings, data, devices or run folder are invalid, or the disk is full. No file
            remains unless an epoch was trained or a checkpoint was saved.
        TrainingError: Out of memory, or weights that are NaN or infinite.
        KeyboardInterrupt: A signal arrived before training, or a second signal arrived later.

    Examples:
        ```python
        result = kdist.training.train(TrainConfig(width=4, epochs=2, replicas=2))
        result.val_accuracy
        ```
    """
    # 1. The worker's place, the run folder, the data.
    check_trackers(config.trackers)
    place = worker_place(os.environ)
    if place.is_chief:
        folder = RunFolder(config.run_dir, resumed=resume)
        record_run_for_restart(folder, os.environ)
    else:
        folder, announce, verbose = OtherWorkersFolder(), lambda _: None, 0
    print_line, announce = announce, lambda line: print_line(folder.show(line))
    try:
        if config.log_dir is not None:
            check_writable_folder(Path(config.log_dir), option="--log-dir")
        data, own_files = None, list[str]()
        if config.model is None:
            data = load_data(config, announce=announce, may_use_sample=may_use_sample)
        else:
            own_files += list_user_files(config.model, config.data or "data")
        # 2. The strategy, before the user's file makes a tensor, and the number format.
        strategy = _make_strategy(config, place)
        with (
            explain_user_errors(*own_files),
            precision_scope(config.precision, strategy.devices),
            explain_out_of_memory(config),
        ):
            result = _train(config, data, folder, strategy, callbacks, announce, verbose, trial)
            folder.upload()
            return dataclasses.replace(result, run_dir=folder.show(folder.path))
    except NonFiniteWeightsError as error:  # found by a checkpoint, while the loss was finite
        folder.discard()
        raise TrainingError(str(error)) from error
    except BaseException:
        folder.discard()
        raise


def _train(
    config: TrainConfig,
    data: ImageData | None,
    folder: RunFolder,
    strategy: "ExactStrategy",
    callbacks: Sequence["keras.callbacks.Callback"],
    announce: Callable[[str], None],
    verbose: int,
    trial: SearchTrial | None,
) -> TrainResult:
    import keras

    from ..strategies.devices import describe_xla
    from .model_and_data import save_model

    # 3. The plan, the model, and the arguments of `fit`.
    keras.utils.set_random_seed(config.seed)
    parts = _make_parts(config, data, folder, strategy, announce)
    announce(describe_xla(parts.model.jit_compile, config.xla, strategy.devices))
    # 4. The callbacks.
    run_callbacks = _make_callbacks(config, parts, folder, callbacks, verbose, trial)
    more_signals = [Signals[config.preemption_signal]] if config.preemption_signal else []
    with hold_signals(*more_signals) as received:
        checkpoint = _make_checkpoint(config, parts, folder, held=received, verbose=verbose)
        if checkpoint is None:
            write_settings(config, parts.plan, folder)
        # 5. `fit`.
        start = time.perf_counter()
        epochs = (trial and trial.epochs) or config.epochs
        interrupted = _fit(
            parts, run_callbacks, checkpoint, received, epochs=epochs, verbose=verbose
        )
        seconds = time.perf_counter() - start
        if folder.is_resumed:
            seconds = run_callbacks.total_time.seconds  # including the time before the resume
        # A signal may have reached one worker only.
        interrupted = any(strategy.exchange("the end of the training", interrupted))
        # 6. The result. The summary comes last: with a summary, nothing is left to save.
        result = _make_result(
            run_callbacks, folder, parts.model, seconds, interrupted, received.first
        )
        if config.save_model and result.diverged is None:
            if interrupted:
                announce("Interrupted: saving the model trained so far.")
            save_model(parts.model, folder, announce)
        run_dir = folder.show(folder.path)
        folder.write_json("summary.json", _make_summary(result, strategy, parts, run_dir))
    for line in format_result(result):
        announce(line)
    if received.first is not None:
        resume = f"; kdist train --resume {folder.path} continues the run" if checkpoint else ""
        announce(f"Interrupted by {received.first.name}: the run is saved in {folder.path}{resume}")
    return dataclasses.replace(result, signal=received.first)


# 1. The data.


def load_data(
    config: TrainConfig, *, announce: Callable[[str], None] = print, may_use_sample: bool = True
) -> ImageData:
    """Load the images that `config` selects.

    Args:
        config: The settings.
        announce: Called with a line that names the source of the images.
        may_use_sample: Whether the embedded sample may replace a data set that cannot be
            downloaded. `False` for runs that are compared, which have to train on the same data.

    Raises:
        UserError: The images cannot be found, or `subset` exceeds the number of training images.
    """
    dataset = DATASETS[config.dataset]
    data = dataset.load(config.data_dir, announce)
    if data.source == SAMPLE and not (may_use_sample or dataset.is_embedded):
        raise UserError(
            f"{config.dataset} was not found and could not be downloaded: pass --data-dir, the"
            " folder with its files, or --dataset sample to train all runs on the embedded sample"
        )
    return data if config.subset is None else data.subset(config.subset)


# 2. The strategy and the number format.


def _make_strategy(config: TrainConfig, place: WorkerPlace) -> "ExactStrategy":
    names = ("replicas", "shards", "shard_optimizer", "shard_weights")
    options = {name: getattr(config, name) for name in names}
    if place.workers > 1:
        from ..workers.multi_worker_strategy import MultiWorkerMirroredStrategy

        return MultiWorkerMirroredStrategy(**options)
    from ..strategies.mirrored_strategy import MirroredStrategy

    return MirroredStrategy(**options)


@contextlib.contextmanager
def precision_scope(precision: str, devices: Sequence[str]) -> Iterator[None]:
    """Make and train models in a number format, and restore the previous format at the end.

    Weights and batch norm statistics are float32 in all formats. With `"mixed_float16"`, Keras
    scales the loss so that small gradients do not underflow (Micikevicius et al. 2018, "Mixed
    Precision Training"). With `"tf32"`, the Tensor Cores of a GPU round the factors of products to
    10 bits of mantissa. TF32 is TensorFlow's default; `"float32"` turns it off.

    Raises:
        UserError: `precision` is `"tf32"` and a device is not a GPU.
    """
    import keras
    import tensorflow as tf

    from ..strategies.devices import are_gpus

    if precision == "tf32" and not are_gpus(devices):
        raise UserError(
            f"precision=tf32 needs NVIDIA GPUs, but the run would be on"
            f" {', '.join(devices)}: choose float32 or mixed_bfloat16"
        )
    policy = keras.config.dtype_policy()
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    keras.config.set_dtype_policy("float32" if precision == "tf32" else precision)
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        tf.config.experimental.enable_tensor_float_32_execution(tf32)


@contextlib.contextmanager
def explain_out_of_memory(config: TrainConfig) -> Iterator[None]:
    """Turn an out-of-memory error in the block into a `TrainingError` with the remedy."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"out of memory: lower --batch-size (now {config.batch_size}) or --val-batch-size (now"
            f" {config.val_batch_size}), or make {model_name(config.to_dict())} smaller"
        ) from error


# 3. The plan, the model, and the arguments of `fit`.


def _make_parts(
    config: TrainConfig,
    data: ImageData | None,
    folder: RunFolder,
    strategy: "ExactStrategy",
    announce: Callable[[str], None],
) -> "RunParts":
    """Make model and data, and announce the settings."""
    from .model_and_data import make_image_parts, make_own_parts

    def announce_settings(plan: TrainPlan) -> None:
        for line in format_settings(config, plan, strategy.devices, folder):
            announce(line)

    # The chief reads the saved plan of a resumed run: its batches and learning rate.
    saved = folder.read_json("plan.json") if folder.is_resumed else None
    saved = strategy.exchange("the plan of the run", saved)[0]
    if data is None:
        parts = make_own_parts(config, strategy, saved)
        announce_settings(parts.plan)
        return parts
    replicas = strategy.num_replicas_in_sync
    new = saved is None
    plan = (
        make_plan(config, replicas=replicas) if new else make_resumed_plan(saved, replicas=replicas)
    )
    announce_settings(plan)
    return make_image_parts(config, data, strategy, plan)


# 4. The callbacks.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """The callbacks of a run in calling order; four callbacks also by name."""

    ordered: Sequence["keras.callbacks.Callback"]
    stop_at_accuracy: "StopAtAccuracy"
    stop_at_non_finite: "StopAtNonFinite"
    history: "keras.callbacks.History"
    total_time: "PrintTotalTime"


def _make_callbacks(
    config: TrainConfig,
    parts: "RunParts",
    folder: RunFolder,
    user_callbacks: Sequence["keras.callbacks.Callback"],
    verbose: int,
    trial: SearchTrial | None,
) -> RunCallbacks:
    """Make the callbacks of a run, in calling order."""
    import keras

    from ..callbacks import (
        PrintThroughput,
        PrintTotalTime,
        SaveTrainingData,
        StopAtNonFinite,
        TrainingTelemetry,
    )
    from ..callbacks.print_throughput import can_count_images
    from .progress import make_progress

    line = min(verbose, 1)
    stop, history = _make_stop(config, trial, verbose=line), keras.callbacks.History()
    total_time = PrintTotalTime(verbose=0)
    finite = StopAtNonFinite(verbose=line)
    telemetry = None
    if config.telemetry is not None:
        telemetry = TrainingTelemetry(every_steps=config.telemetry, verbose=line)
    images = None if can_count_images(parts.model) else parts.training_images
    ordered = [
        # First, so that all callbacks below see the metrics of the averaged weights.
        *([keras.callbacks.SwapEMAWeights()] if config.ema_momentum is not None else []),
        finite,
        PrintThroughput(images, verbose=0),
        *([telemetry] if telemetry is not None else []),
        stop,
        total_time,
        *user_callbacks,
        *make_progress(verbose, total_time),  # shows the measurements above
        history,  # after all callbacks that add to `logs`, to record their values
        SaveTrainingData(folder.history, verbose=0),
    ]
    if folder.is_written:
        # Last, to record the values that all callbacks have added to `logs`.
        ordered += _make_trackers(config, parts, folder, telemetry, trial, verbose=verbose)
    return RunCallbacks(
        ordered=ordered,
        stop_at_accuracy=stop,
        stop_at_non_finite=finite,
        history=history,
        total_time=total_time,
    )


def _make_stop(config: TrainConfig, trial: SearchTrial | None, *, verbose: int) -> "StopAtAccuracy":
    from ..callbacks import StopAtAccuracy

    has_metric = config.model is None or config.monitor is not None
    if not has_metric or (trial is not None and not trial.has_target):
        budget = math.inf if config.time_budget is None else config.time_budget
        return StopAtAccuracy(None, time_budget=budget, verbose=verbose)
    return StopAtAccuracy(
        {config.monitor or "val_accuracy": config.target_accuracy},
        config.patience,
        time_budget=config.time_budget,
        verbose=verbose,
    )


def _make_trackers(
    config: TrainConfig,
    parts: "RunParts",
    folder: RunFolder,
    telemetry: "TrainingTelemetry | None",
    trial: SearchTrial | None,
    *,
    verbose: int,
) -> list["keras.callbacks.Callback"]:
    """Make the trackers, which show the settings, the plan and the size of the model."""
    from ..tracking.tracker import Tracker

    plan, model = parts.plan, parts.model
    model_settings = {} if config.model is None else {"model": model_name(config.to_dict())}
    trackers = tracking(
        *config.trackers,
        folder=folder.path,
        config=config.shareable_settings()
        | model_settings
        | {
            "replicas": plan.replicas,
            "global_batch": plan.global_batch,
            "learning_rate": plan.learning_rate,
            "parameters": model.count_params() if model.built else None,
            "xla": bool(model.jit_compile),
        },
        every_batches=config.track_batches,
        tensorboard_folder=config.log_dir,
        telemetry=telemetry if config.trackers else None,
        verbose=verbose,
        **({} if trial is None else trial.tracked),
    )
    for tracker in trackers:
        if isinstance(tracker, Tracker):
            tracker.continues_run = folder.is_resumed
    return trackers


def _make_checkpoint(
    config: TrainConfig,
    parts: "RunParts",
    folder: RunFolder,
    *,
    held: ReceivedSignals,
    verbose: int,
) -> "RunCheckpoint | None":
    """Make the callback that saves a run, and resumes it; `None` without `checkpoint_every`."""
    if config.checkpoint_every is None:
        return None
    from .run_callbacks import RunCheckpoint

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
    folder.write_json("config.json", config.used_settings())


# 5. `fit`.


def _fit(
    parts: "RunParts",
    run_callbacks: RunCallbacks,
    checkpoint: "RunCheckpoint | None",
    received: ReceivedSignals,
    *,
    epochs: int,
    verbose: int,
) -> bool:
    """Train; after a signal or a loss that is not finite, end as after the last epoch.

    A second signal raises `KeyboardInterrupt`. Any other exception passes through unchanged.

    Returns:
        Whether a signal to this worker interrupted the training.
    """
    from ..tracking.tracker import close_trackers
    from .progress import EpochLines
    from .run_callbacks import (
        DivergedError,
        RaiseAtBatchEnd,
        RaiseWhenDiverged,
        StopAfterEpoch,
        end_training,
    )

    has_workers = parts.model.distribute_strategy.workers > 1
    # If a single worker left within an epoch, the remaining workers would wait forever.
    stop_callback = checkpoint or (
        StopAfterEpoch(received) if has_workers else RaiseAtBatchEnd(received)
    )
    callbacks = [
        *run_callbacks.ordered,
        RaiseWhenDiverged(run_callbacks.stop_at_non_finite),
        stop_callback,
    ]
    try:
        with close_trackers(run_callbacks.ordered):
            parts.model.fit(callbacks=callbacks, epochs=epochs, verbose=verbose, **parts.fit)
    except (KeyboardInterrupt, DivergedError) as error:
        if received.has_second:
            raise
        has_lines = any(isinstance(callback, EpochLines) for callback in run_callbacks.ordered)
        if verbose == 1 and not has_lines:
            print()  # Keras's bar has not ended its line
        end_training(parts.model, run_callbacks.ordered)
        return isinstance(error, KeyboardInterrupt)
    return has_workers and received.first is not None


# 6. The result.


def _make_result(
    run_callbacks: RunCallbacks,
    folder: RunFolder,
    model: "keras.Model",
    seconds: float,
    interrupted: bool,
    received: Signals | None,
) -> TrainResult:
    history: dict[str, list[float]] = run_callbacks.history.history
    stop = run_callbacks.stop_at_accuracy
    accuracies = history.get("val_accuracy", [])
    return TrainResult(
        val_accuracy=accuracies[-1] if accuracies else None,
        best_val_accuracy=max(accuracies, default=None),
        images_per_sec=median_images_per_second(history.get("images_per_sec", [])),
        seconds=seconds,
        epochs=max(map(len, history.values()), default=0),
        reached_target=stop.reached,
        met_epoch=stop.met_epoch if stop.reached else None,
        met_seconds=stop.met_seconds if stop.reached else None,
        interrupted=interrupted,
        signal=received,
        diverged=run_callbacks.stop_at_non_finite.found,
        run_dir=str(folder.path),
        history=history,
        model=model,
    )


def _make_summary(
    result: TrainResult, strategy: "ExactStrategy", parts: "RunParts", run_dir: str
) -> dict[str, Any]:
    """Return the result, hardware and versions as plain data for `summary.json`."""
    names = [field.name for field in dataclasses.fields(result)]
    values = {name: getattr(result, name) for name in names if name not in ("history", "model")}
    diverged = result.diverged
    return values | {
        "run_dir": run_dir,
        "signal": None if result.signal is None else result.signal.name,
        "diverged": None if diverged is None else {"epoch": diverged.epoch, "step": diverged.step},
        "replicas": parts.plan.replicas,
        "workers": strategy.workers,
        "devices": list(strategy.devices),
        "device_names": device_names(strategy.devices),
        "global_batch": parts.plan.global_batch,
        "learning_rate": parts.plan.learning_rate,
        "parameters": result.model.count_params(),
        "data": parts.source,
        "training_images": parts.training_images,
        "validation_images": parts.validation_images,
        "versions": versions(),
    }
