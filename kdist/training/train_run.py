"""`train`: run a training from settings to result and run folder."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from ..data import ImageData
from ..errors import NonFiniteWeightsError, TrainingError
from ..files import check_writable_folder
from ..launch.child import is_out_of_memory
from ..signals import hold_signals
from .config import SearchTrial, TrainConfig, TrainPlan, make_plan, resumed_plan
from .console import result_lines, settings_lines
from .folder import RunFolder
from .images import load_data
from .precision import precision_scope
from .result import TrainResult, make_result, summary
from .settings import model_name
from .user_model.functions import explain_errors_of, files_of
from .worker_place import OtherWorkersFolder, WorkerPlace, note_run, worker_place

if TYPE_CHECKING:
    import keras

    from ..strategies.exact_strategy import ExactStrategy
    from .model import RunParts


@contextlib.contextmanager
def explain_out_of_memory(config: TrainConfig, data: ImageData | None) -> Iterator[None]:
    """Turn an out-of-memory error into a line that names the setting to lower.

    Args:
        config: The settings.
        data: The images; `None` for a user's model.

    Raises:
        TrainingError: Memory ran out in the block.
    """
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if data is None:
            raise TrainingError(
                f"out of memory: lower --batch-size, which is {config.batch_size}, or make the"
                f" model of {model_name(config.to_dict())} smaller"
            ) from error
        names = [n for n in ("batch_size", "val_batch_size", "width") if getattr(config, n) > 1]
        lower = " or ".join(
            f"--{n.replace('_', '-')}, which is {getattr(config, n)}" for n in names
        )
        raise TrainingError(
            f"out of memory: lower {lower or '--depth'} ({model_name(config.to_dict())})"
        ) from error


# TensorFlow and Keras are imported inside the functions. Their import takes seconds, and mistakes
# in the settings, the data or the run folder are reported before it.


def train(
    config: TrainConfig,
    *,
    callbacks: Sequence["keras.callbacks.Callback"] = (),
    announce: Callable[[str], None] = print,
    verbose: int = 1,
    resume: bool = False,
    or_sample: bool = True,
    trial: SearchTrial | None = None,
) -> TrainResult:
    """Train a network, or your own model, with the settings in `config`.

    Args:
        config: The settings.
        callbacks: Additional Keras callbacks. Values that they add to `logs` are saved in
            `history.csv`.
        announce: Called with lines that describe the run: its settings, and at the end its result.
        verbose: 0 for no progress; 1 for Keras's progress bar on a terminal, and a line per epoch;
            2 for the line only, as without a terminal.
        resume: Continue the run in `config.run_dir`, from its newest checkpoint. `resume_run` also
            compares the settings.
        or_sample: Train on the embedded sample, and say so, if Fashion-MNIST cannot be downloaded.
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

    Example:
        ```python
        result = kdist.training.train(TrainConfig(width=4, epochs=2, replicas=2))
        result.val_accuracy
        ```
    """
    place = worker_place(os.environ)
    if place.is_chief:
        folder = RunFolder(config.run_dir, resumed=resume)
        note_run(folder, os.environ)
    else:
        folder, announce, verbose = OtherWorkersFolder(), _say_nothing, 0
    try:
        if config.log_dir is not None:
            check_writable_folder(Path(config.log_dir), option="--log-dir")
        own = config.model is not None
        # The strategy has to exist before the user's file makes a tensor.
        data = None if own else load_data(config, announce=announce, or_sample=or_sample)
        strategy = _make_strategy(config, place)
        with (
            explain_errors_of(*_own_files(config)),
            precision_scope(config.precision, strategy.devices),
            explain_out_of_memory(config, data),
        ):
            return _train(config, data, folder, strategy, callbacks, announce, verbose, trial)
    except NonFiniteWeightsError as error:  # where the loss was finite still
        folder.discard()
        raise TrainingError(str(error)) from error
    except BaseException:
        folder.discard()
        raise


def _say_nothing(_: str) -> None:
    """Print nothing: only the chief prints."""


def _make_strategy(config: TrainConfig, place: WorkerPlace) -> "ExactStrategy":
    names = ("replicas", "shards", "shard_optimizer")
    options = {name: getattr(config, name) for name in names}
    if place.workers > 1:
        from ..workers.multi_worker_strategy import MultiWorkerMirroredStrategy

        return MultiWorkerMirroredStrategy(**options)
    from ..strategies.mirrored_strategy import MirroredStrategy

    return MirroredStrategy(**options)


def _own_files(config: TrainConfig) -> tuple[str, ...]:
    return () if config.model is None else files_of(config.model, config.data or "data")


def _saved_plan(folder: RunFolder, strategy: "ExactStrategy") -> dict[str, Any] | None:
    """Return the saved plan of a resumed run: its batches and learning rate, read by the chief."""
    saved = folder.read_json("plan.json") if folder.is_resumed else None
    found: dict[str, Any] | None = strategy.exchange("the plan of the run", saved)[0]
    return found


def _make_parts(
    config: TrainConfig,
    data: ImageData | None,
    folder: RunFolder,
    strategy: "ExactStrategy",
    announce: Callable[[str], None],
) -> "RunParts":
    """Make model and data, and announce the settings."""
    from .model import image_parts

    def announce_settings(plan: TrainPlan) -> None:
        for line in settings_lines(config, plan, strategy.devices, folder):
            announce(line)

    saved, replicas = _saved_plan(folder, strategy), strategy.num_replicas_in_sync
    if data is None:
        from .model import own_parts

        parts = own_parts(config, strategy, saved)
        announce_settings(parts.plan)
        return parts
    if saved is None:
        plan = make_plan(config, replicas=replicas)
    else:
        plan = resumed_plan(saved, replicas=replicas)
    announce_settings(plan)
    return image_parts(config, data, strategy, plan)


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
    from ..tracking.tracker import ended
    from .early_end import EarlyEnd
    from .run_callbacks import make_callbacks, make_checkpoint, write_settings

    keras.utils.set_random_seed(config.seed)
    parts = _make_parts(config, data, folder, strategy, announce)
    announce(describe_xla(parts.model.jit_compile, config.xla, strategy.devices))
    made = make_callbacks(config, parts, folder, more=callbacks, verbose=verbose, trial=trial)
    more_signals = [Signals[config.preemption_signal]] if config.preemption_signal else []
    with hold_signals(*more_signals) as received:
        checkpoint = make_checkpoint(config, parts, folder, held=received, verbose=verbose)
        if checkpoint is None:
            write_settings(config, parts.plan, folder)
        start = time.perf_counter()
        early_end = EarlyEnd(
            parts.model,
            made,
            received=received,
            checkpoint=checkpoint,
            workers=strategy.workers,
        )
        given = dict(parts.fit)
        if not config.validate:
            given.pop("validation_data", None)
        epochs = (trial and trial.epochs) or config.epochs
        with early_end, ended(made.ordered):
            parts.model.fit(callbacks=early_end.callbacks, epochs=epochs, verbose=verbose, **given)
        seconds = time.perf_counter() - start
        if folder.is_resumed:
            seconds = made.total_time.seconds  # including the time before the resume
        # A signal may have reached a single worker.
        interrupted = any(strategy.exchange("the end of the training", early_end.interrupted))
        result = make_result(made, folder, parts.model, seconds, interrupted, received.first)
        # Written before the large model file: the disk may be full, and a batch system may not
        # wait.
        folder.write_json("summary.json", summary(result, strategy, parts))
        if config.save_model and result.diverged is None:
            _save_model(parts.model, folder, announce, interrupted=interrupted)
    _announce_result(result, received.first, announce, resumable=checkpoint is not None)
    return dataclasses.replace(result, signal=received.first)


def _save_model(
    model: "keras.Model", folder: RunFolder, announce: Callable[[str], None], *, interrupted: bool
) -> None:
    from .model import save_stock_model

    if interrupted:
        announce("Interrupted: saving the model trained so far.")
    line = save_stock_model(model, folder)
    if line is not None:
        announce(line)


def _announce_result(
    result: TrainResult, number: Signals | None, announce: Callable[[str], None], *, resumable: bool
) -> None:
    for line in result_lines(result):
        announce(line)
    if number is not None:
        resume = f"; kdist train --resume {result.run_dir} continues it" if resumable else ""
        announce(f"Interrupted by {number.name}: the run is saved in {result.run_dir}{resume}")
