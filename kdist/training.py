"""`train`: one training run, from a `TrainConfig` to a `TrainResult` and a run folder."""

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .config import TrainConfig
from .data import ImageData, fashion_mnist
from .errors import UserError
from .precision import computing_in
from .run_folder import RunFolder
from .run_parts import make_model, make_pipelines
from .scaling import scale_learning_rate
from .tracking.trackers import tracking
from .train_result import TrainResult, make_result, summary
from .xla import check_xla, tell_xla

if TYPE_CHECKING:
    import keras

    from .strategy import MirroredStrategy

# TensorFlow and Keras are imported inside the functions: what the caller has to mend in the
# settings, the data or the run folder is told before their import, which takes seconds.


def train(
    config: TrainConfig,
    *,
    callbacks: Sequence["keras.callbacks.Callback"] = (),
    announce: Callable[[str], None] = print,
    verbose: int = 1,
    leave_out: Collection[str] = (),
) -> TrainResult:
    """Train a WideResNet as `config` says.

    Args:
        config: The settings.
        callbacks: Keras callbacks besides those the run has anyway. What they put into `logs` is
            in `history.csv`.
        announce: Takes the lines that say what is trained on what.
        verbose: As in `fit`; 0 also silences kdist's callbacks.
        leave_out: What is left out of a step to measure what it takes, `"collectives"` or
            `"input"` (see `kdist.left_out`); what such a run learns is worth nothing.

    Returns:
        The result. The run folder holds `config.json`, `history.csv` (a line an epoch),
        `summary.json` and `model.keras`, also after Ctrl-C.

    Raises:
        UserError: Settings, data, devices or run folder that will not do; no file is left then.
    """
    folder = RunFolder(config.run_dir)
    try:
        _make_log_dir(config.log_dir)
        data = load_data(config, announce=announce)
        from .strategy import MirroredStrategy

        ops = None
        if "collectives" in leave_out:
            from .left_out import NoCollectives

            ops = NoCollectives()
        strategy = MirroredStrategy(replicas=config.replicas, cross_device_ops=ops)
        if config.xla:
            check_xla(strategy.devices)
        with computing_in(config.precision, strategy.devices):
            return _train(config, data, folder, strategy, callbacks, announce, verbose, leave_out)
    except BaseException:
        folder.discard()
        raise


def _make_log_dir(path: str | None) -> None:
    try:
        if path is not None:
            Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {path} for TensorBoard: {error.strerror}; pass another"
            " --log-dir"
        ) from error


def load_data(config: TrainConfig, *, announce: Callable[[str], None] = print) -> ImageData:
    """The images that `config` asks for."""
    data = fashion_mnist(
        data_dir=config.data_dir, sample=config.dataset == "sample", announce=announce
    )
    return data if config.subset is None else data.subset(config.subset)


def _train(
    config: TrainConfig,
    data: ImageData,
    folder: RunFolder,
    strategy: "MirroredStrategy",
    callbacks: Sequence["keras.callbacks.Callback"],
    announce: Callable[[str], None],
    verbose: int,
    leave_out: Collection[str],
) -> TrainResult:
    import keras

    from .batch_norm_conversion import convert_batch_norm
    from .callbacks import (
        GradientNoiseScale,
        PrintThroughput,
        PrintTotalTime,
        SaveTrainingData,
        StopAtAccuracy,
    )
    from .interrupts import interrupts_at_batch_end
    from .tracking.tracker import ended

    keras.utils.set_random_seed(config.seed)
    replicas = strategy.num_replicas_in_sync
    global_batch = replicas * config.batch_size
    learning_rate = scale_learning_rate(
        config.base_lr, replicas=replicas, rule=config.lr_rule, optimizer=config.optimizer
    )
    announce(f"Devices: {', '.join(strategy.devices)}")
    announce(f"Replicas: {replicas}")
    announce(f"Global batch: {global_batch} ({config.batch_size} a replica)")
    announce(
        f"Learning rate: {learning_rate:g} ({config.base_lr:g} for one replica,"
        f" rule {config.lr_rule})"
    )
    announce(f"Run folder: {folder.path}")

    training, validation = make_pipelines(config, data, replicas=replicas)
    model = make_model(
        config,
        data,
        strategy,
        learning_rate=learning_rate,
        steps_per_epoch=int(training.cardinality()),
    )
    xla = bool(model.jit_compile)
    announce(tell_xla(xla, config.xla, strategy.devices))
    if "input" in leave_out:
        from .left_out import same_batch_again

        training = same_batch_again(training)
    targets = {"val_accuracy": config.target_accuracy}
    if config.target_train_accuracy is not None:
        targets["accuracy"] = config.target_train_accuracy
    stopping = StopAtAccuracy(
        targets,
        config.patience,
        validation_freq=1 if config.validate else config.epochs + 1,  # never
        time_budget=config.time_budget,
        verbose=min(verbose, 1),
    )
    shown = config.to_dict() | {
        "replicas": replicas,
        "global_batch": global_batch,
        "learning_rate": learning_rate,
        "parameters": model.count_params(),
        "xla": xla,
    }
    trackers = tracking(
        *(name for name in config.trackers if name != "csv"),  # which a run has anyway
        folder=folder.path,
        config=shown,
        every_batches=config.track_batches,
        log_model=config.log_model,
        profile_batches=config.profile_batches,
        tensorboard_folder=config.log_dir,
        verbose=verbose,
    )
    history = keras.callbacks.History()
    averaging = [keras.callbacks.SwapEMAWeights()] if config.ema_momentum is not None else []
    run_callbacks = [
        *averaging,  # first: the others are to see what the average reaches
        PrintThroughput(verbose=min(verbose, 1)),
        *([GradientNoiseScale(verbose=min(verbose, 1))] if config.noise_scale else []),
        stopping,
        PrintTotalTime(verbose=min(verbose, 1)),
        *callbacks,
        history,  # from here on: what the callbacks above put into `logs` is to be kept
        SaveTrainingData(folder.history, verbose=0),
        *trackers,  # last: to see what the others add to `logs`
    ]
    folder.write_json("config.json", config.to_dict())
    interrupted = False
    start = time.perf_counter()
    try:
        with interrupts_at_batch_end() as interrupts, ended(run_callbacks):
            model.fit(
                training,
                shuffle=False,  # the pipeline shuffles
                validation_data=validation if config.validate else None,
                epochs=config.epochs,
                callbacks=[*run_callbacks, interrupts],
                verbose=verbose,
            )
    except KeyboardInterrupt:
        interrupted = True
        announce("Interrupted: saving what was trained.")
        if int(model.optimizer.iterations.numpy()):  # `fit` did not come to what follows
            for swap in averaging:
                swap.on_test_end()  # nothing, unless validation was interrupted
            model.optimizer.finalize_variable_values(model.trainable_weights)
            for callback in run_callbacks:
                callback.on_train_end()
    seconds = time.perf_counter() - start
    if config.save_model:
        convert_batch_norm(model, to="stock")  # for a file that opens without kdist
        try:
            folder.save_model(model)
        finally:
            convert_batch_norm(model, to="synchronized")
    result = make_result(history.history, folder, model, seconds, interrupted, stopping.reached)
    folder.write_json("summary.json", summary(result, strategy, global_batch, learning_rate, data))
    return result
