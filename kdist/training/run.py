"""`train`: one training run, from a `TrainConfig` to a `TrainResult` and a run folder."""

import dataclasses
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic_files import check_writable_folder
from ..data import ImageData
from ..distribute.xla import check_xla, describe_xla
from ..runs.run_folder import RunFolder
from ..signals import hold_signals
from .config import TrainConfig
from .console import result_lines, settings_lines
from .model import make_model, save_stock_model
from .out_of_memory import explain_out_of_memory
from .pipelines import load_data, make_pipelines
from .plan import make_plan
from .precision import precision_scope
from .result import TrainResult, make_result, summary

if TYPE_CHECKING:
    import keras

    from ..distribute.mirrored_strategy import MirroredStrategy

# TensorFlow and Keras are imported inside the functions: what the caller has to fix in the
# settings, the data or the run folder is reported before their import, which takes seconds.


def train(
    config: TrainConfig,
    *,
    callbacks: Sequence["keras.callbacks.Callback"] = (),
    announce: Callable[[str], None] = print,
    verbose: int = 1,
    ablate: Collection[str] = (),
) -> TrainResult:
    """Train a WideResNet with the settings in `config`.

    Args:
        config: The settings.
        callbacks: Additional Keras callbacks. The values that they add to `logs` are saved in
            `history.csv`.
        announce: Called with lines that describe the run: its settings, at the end its result.
        verbose: 0 for no progress; 1 for Keras's progress bar on a terminal, and a line per epoch;
            2 for the line alone, as without a terminal.
        ablate: Parts of a training step to remove, in order to measure how long they take:
            `"collectives"` or `"input"` (see `kdist.performance.ablation`). The trained model is
            then useless.

    Ctrl-C, SIGTERM and SIGHUP stop training at the end of a batch, and wait while files are
    written; a second signal ends at once. Where the caller has a handler of a signal, or ignores
    it, that stays.

    Returns:
        The result. The run folder contains `config.json`, `history.csv` (one row per epoch),
        `summary.json` and `model.keras`, also after a signal. A run whose loss was not finite saves
        no model.

    Raises:
        UserError: Settings, data, devices or run folder are invalid, or the disk is full. No file
            is left unless an epoch was trained.
        TrainingError: Out of memory.
        KeyboardInterrupt: A signal arrived before training, or a second one later.

    Example:
        ```python
        result = kdist.training.train(TrainConfig(width=4, epochs=2, replicas=2))
        result.val_accuracy
        ```
    """
    folder = RunFolder(config.run_dir)
    try:
        if config.log_dir is not None:
            check_writable_folder(Path(config.log_dir), option="--log-dir")
        data = load_data(config, announce=announce)
        strategy = _make_strategy(config, ablate)
        with (
            precision_scope(config.precision, strategy.devices),
            explain_out_of_memory(config, data),
        ):
            return _train(config, data, folder, strategy, callbacks, announce, verbose, ablate)
    except BaseException:
        folder.discard()
        raise


def _make_strategy(config: TrainConfig, ablate: Collection[str]) -> "MirroredStrategy":
    from ..distribute.mirrored_strategy import MirroredStrategy

    ops = None
    if "collectives" in ablate:
        from ..performance.ablation import SkipAllReduce

        ops = SkipAllReduce()
    strategy = MirroredStrategy(replicas=config.replicas, cross_device_ops=ops)
    if config.xla:
        check_xla(strategy.devices)
    return strategy


def _train(
    config: TrainConfig,
    data: ImageData,
    folder: RunFolder,
    strategy: "MirroredStrategy",
    callbacks: Sequence["keras.callbacks.Callback"],
    announce: Callable[[str], None],
    verbose: int,
    ablate: Collection[str],
) -> TrainResult:
    import keras

    from .callbacks import make_callbacks
    from .interrupts import fit_interruptible

    keras.utils.set_random_seed(config.seed)
    plan = make_plan(config, replicas=strategy.num_replicas_in_sync)
    for line in settings_lines(config, plan, strategy.devices, folder):
        announce(line)
    training, validation = make_pipelines(config, data, plan)
    model = make_model(config, data, strategy, plan)
    announce(describe_xla(bool(model.jit_compile), config.xla, strategy.devices))
    if "input" in ablate:
        from ..performance.ablation import repeat_first_batch

        training = repeat_first_batch(training)
    made = make_callbacks(config, plan, model, folder, more=callbacks, verbose=verbose)
    with hold_signals() as received:
        folder.write_json("config.json", config.to_dict())
        start = time.perf_counter()
        interrupted = fit_interruptible(
            model,
            training,
            callbacks=made.ordered,
            received=received,
            stop=made.finite,
            shuffle=False,  # the pipeline shuffles
            validation_data=validation if config.validate else None,
            epochs=config.epochs,
            verbose=verbose,
        )
        seconds = time.perf_counter() - start
        result = make_result(made, folder, model, seconds, interrupted, received.first)
        # Before the model, whose file is large: a disk may be full, a batch system may not wait.
        folder.write_json("summary.json", summary(result, strategy, plan, data))
        if config.save_model and result.diverged is None:
            if interrupted:
                announce("Interrupted: saving the model trained so far.")
            save_stock_model(model, folder)
    for line in result_lines(result):
        announce(line)
    if received.first is not None:
        announce(f"Interrupted by {received.first.name}: the run is saved in {folder.path}")
    return dataclasses.replace(result, signal=received.first)
