"""`train`: one training run, from a `TrainConfig` to a `TrainResult` and a run folder."""

import dataclasses
import importlib.metadata
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import TrainConfig
from .data import ImageData, fashion_mnist
from .errors import UserError
from .hardware import device_names
from .optimizer_choice import make_optimizer, penalty
from .run_folder import RunFolder
from .scaling import scale_learning_rate

if TYPE_CHECKING:
    import keras

    from .strategy import MirroredStrategy

# TensorFlow and Keras are imported inside the functions: what the caller has to mend in the
# settings, the data or the run folder is told before their import, which takes seconds.

_VERSIONS = ("kdist", "tensorflow", "keras", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What a run came to.

    Attributes:
        val_accuracy: Validation accuracy after the last whole epoch; `None` if there was none.
        best_val_accuracy: The best of all epochs.
        images_per_sec: Training images a second, median over the epochs after the first.
        seconds: Duration of `fit`, validation included.
        epochs: Whole epochs trained.
        reached_target: Whether training stopped because the target accuracy was reached.
        interrupted: Whether Ctrl-C ended the training.
        run_dir: The run folder.
        history: The values of each epoch, by name.
        model: The trained model.
    """

    val_accuracy: float | None
    best_val_accuracy: float | None
    images_per_sec: float | None
    seconds: float
    epochs: int
    reached_target: bool
    interrupted: bool
    run_dir: str
    history: dict[str, list[float]]
    model: "keras.Model"


def train(
    config: TrainConfig,
    *,
    callbacks: Sequence["keras.callbacks.Callback"] = (),
    announce: Callable[[str], None] = print,
    verbose: int = 1,
) -> TrainResult:
    """Train a WideResNet as `config` says.

    Args:
        config: The settings.
        callbacks: Keras callbacks besides those the run has anyway.
        announce: Takes the lines that say what is trained on what.
        verbose: As in `fit`; 0 also silences kdist's callbacks.

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

        strategy = MirroredStrategy(replicas=config.replicas)
        return _train(config, data, folder, strategy, callbacks, announce, verbose)
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
) -> TrainResult:
    import keras

    from .batch_norm_conversion import convert_batch_norm
    from .callbacks import PrintThroughput, PrintTotalTime, SaveTrainingData, StopAtAccuracy
    from .data import Standardization, evaluation_batches, training_batches
    from .interrupts import interrupts_at_batch_end
    from .models import WideResNet

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

    standardization = Standardization.of(data.train_images)
    training = training_batches(
        data.train_images,
        data.train_labels,
        batch_size=global_batch,
        seed=config.seed,
        standardization=standardization,
        augment=config.augment,
    )
    validation = evaluation_batches(
        data.test_images,
        data.test_labels,
        batch_size=replicas * config.val_batch_size,
        standardization=standardization,
    )
    model = strategy.build(
        lambda: WideResNet(
            config.depth,
            config.width,
            input_shape=data.image_shape,
            classes=data.classes,
            dropout=config.dropout,
            weight_decay=penalty(config.optimizer, config.wd),
        )
    )
    with strategy.scope():
        model.compile(
            make_optimizer(
                config.optimizer,
                _schedule(config, learning_rate, steps_per_epoch=int(training.cardinality())),
                momentum=config.momentum,
                wd=config.wd,
            ),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
    targets = {"val_accuracy": config.target_accuracy}
    if config.target_train_accuracy is not None:
        targets["accuracy"] = config.target_train_accuracy
    stopping = StopAtAccuracy(
        targets, config.patience, time_budget=config.time_budget, verbose=min(verbose, 1)
    )
    history = keras.callbacks.History()
    run_callbacks = [
        PrintThroughput(verbose=min(verbose, 1)),
        stopping,
        PrintTotalTime(verbose=min(verbose, 1)),
        history,
        SaveTrainingData(folder.history, verbose=0),
        *([keras.callbacks.TensorBoard(config.log_dir)] if config.log_dir else []),
        *callbacks,
    ]
    folder.write_json("config.json", config.to_dict())
    interrupted = False
    start = time.perf_counter()
    try:
        with interrupts_at_batch_end() as interrupts:
            model.fit(
                training,
                shuffle=False,  # the pipeline shuffles
                validation_data=validation,
                epochs=config.epochs,
                callbacks=[*run_callbacks, interrupts],
                verbose=verbose,
            )
    except KeyboardInterrupt:
        interrupted = True
        announce("Interrupted: saving what was trained.")
        if int(model.optimizer.iterations.numpy()):
            for callback in run_callbacks:  # `fit` did not come to it
                callback.on_train_end()
    seconds = time.perf_counter() - start
    convert_batch_norm(model, to="stock")  # for a file that opens without kdist
    try:
        folder.save_model(model)
    finally:
        convert_batch_norm(model, to="synchronized")
    result = _result(history.history, folder, model, seconds, interrupted, stopping.reached)
    folder.write_json("summary.json", _summary(result, strategy, global_batch, learning_rate, data))
    return result


def _schedule(config: TrainConfig, learning_rate: float, *, steps_per_epoch: int) -> Any:
    """The learning rate over the run's steps."""
    import keras

    from .schedules import WarmUp, lab_schedule

    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if warmup_steps >= config.epochs * steps_per_epoch:
        raise UserError(
            f"warmup_epochs={config.warmup_epochs:g} is {warmup_steps} of the run's"
            f" {config.epochs * steps_per_epoch} steps and leaves none to train at the full"
            " learning rate: lower it, or raise epochs"
        )
    if config.schedule == "lab":
        return lab_schedule(
            learning_rate, steps_per_epoch=steps_per_epoch, warmup_epochs=config.warmup_epochs
        )
    schedule: Any = learning_rate
    if config.schedule == "cosine":
        schedule = keras.optimizers.schedules.CosineDecay(
            learning_rate, config.epochs * steps_per_epoch - warmup_steps
        )
    return WarmUp(schedule, steps=warmup_steps) if warmup_steps else schedule


def _result(
    history: dict[str, list[float]],
    folder: RunFolder,
    model: "keras.Model",
    seconds: float,
    interrupted: bool,
    reached_target: bool,
) -> TrainResult:
    accuracies = history.get("val_accuracy", [])
    rates = history.get("images_per_sec", [])
    rates = rates[1:] or rates  # the first epoch holds the tracing of the step
    return TrainResult(
        val_accuracy=accuracies[-1] if accuracies else None,
        best_val_accuracy=max(accuracies, default=None),
        images_per_sec=statistics.median(rates) if rates else None,
        seconds=seconds,
        epochs=len(accuracies),
        reached_target=reached_target,
        interrupted=interrupted,
        run_dir=str(folder.path),
        history=history,
        model=model,
    )


def _summary(
    result: TrainResult,
    strategy: "MirroredStrategy",
    global_batch: int,
    learning_rate: float,
    data: ImageData,
) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(result)]
    values = {name: getattr(result, name) for name in names if name not in ("history", "model")}
    return values | {
        "replicas": strategy.num_replicas_in_sync,
        "devices": list(strategy.devices),
        "device_names": device_names(strategy.devices),
        "global_batch": global_batch,
        "learning_rate": learning_rate,
        "parameters": result.model.count_params(),
        "data": data.source,
        "training_images": len(data.train_images),
        "validation_images": len(data.test_images),
        "versions": {name: importlib.metadata.version(name) for name in _VERSIONS}
        | {"python": platform.python_version()},
    }
