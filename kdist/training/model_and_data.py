"""The model and the data of a run: WideResNet and its images, or the user's own."""

import dataclasses
import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..callbacks.print_throughput import can_count_images
from ..data import ImageData, Standardization, evaluation_batches, training_batches
from ..data.transforms import make_augmentation
from ..errors import TrainingError, UserError
from ..models import WideResNet
from ..optimizers.optimizer_choices import l2_factor, make_optimizer
from ..optimizers.schedules import make_schedule
from .config import TrainConfig, TrainPlan, make_plan, make_resumed_plan
from .run_folder import RunFolder
from .settings import Batches
from .user_model.compiled_model import (
    check_input,
    check_model_result,
    read_compiled_rate,
    scale_compiled_rate,
    set_compiled_rate,
)
from .user_model.user_data import UserData
from .user_model.user_functions import UserFunctions, explain_exception, load_functions

if TYPE_CHECKING:
    from ..strategies.exact_strategy import ExactStrategy


def make_model(
    config: TrainConfig, data: ImageData, strategy: "ExactStrategy", plan: TrainPlan
) -> keras.Model:
    """Make and compile the WideResNet described by `config`, in the strategy's scope.

    The model depends on the number, shape and classes of the images.
    """
    model = strategy.build(
        lambda: WideResNet(
            config.depth,
            config.width,
            stem_pool=config.stem_pool,
            dropout=config.dropout,
            input_shape=data.image_shape,
            classes=data.classes,
            weight_decay=l2_factor(config.optimizer, config.wd),
            classifier_activation="softmax",
        )
    )
    loss: Any = "sparse_categorical_crossentropy"
    if config.label_smoothing:
        loss = keras.losses.CategoricalCrossentropy(label_smoothing=config.label_smoothing)
    with strategy.scope():
        model.compile(
            make_optimizer(
                config.optimizer,
                make_run_schedule(config, plan, data),
                momentum=config.momentum,
                weight_decay=config.wd,
                ema_momentum=config.ema_momentum,
                ema_warmup=config.ema_warmup,
            ),
            loss,
            metrics=["accuracy"],
            jit_compile="auto" if config.xla is None else config.xla,
            steps_per_execution="auto",
        )
    return model


def make_run_schedule(config: TrainConfig, plan: TrainPlan, data: ImageData) -> Any:
    """Return the learning rate schedule of a run; a float if the rate is constant."""
    return make_schedule(
        config.schedule,
        plan.learning_rate,
        epochs=config.epochs,
        steps_per_epoch=plan.steps_per_epoch(len(data.train_images)),
        warmup_epochs=config.warmup_epochs,
        decay_epochs=config.decay_epochs,
        decay_rate=config.decay_rate,
    )


def make_pipelines(config: TrainConfig, data: ImageData, plan: TrainPlan) -> tuple[Any, Any]:
    """Make the batches of the training and validation images.

    Returns:
        Two `tf.data.Dataset`s of (images, labels); with label smoothing the labels are one-hot.
    """

    def encode(labels: Any) -> Any:  # Keras smooths one-hot labels only
        return np.eye(data.classes)[labels] if config.label_smoothing else labels

    standardization = Standardization.of(data.train_images)
    training = training_batches(
        data.train_images,
        encode(data.train_labels),
        batch_size=plan.global_batch,
        seed=config.seed,
        standardization=standardization,
        augment=config.augment and make_augmentation(config.augmentation, data),
        shift=config.shift,
        whole_pixels=config.whole_pixels,
    )
    validation = evaluation_batches(
        data.test_images,
        encode(data.test_labels),
        batch_size=plan.validation_batch,
        standardization=standardization,
    )
    return training, validation


def save_model(model: keras.Model, folder: RunFolder, announce: Callable[[str], None]) -> None:
    """Save the model in the run folder.

    If the model cannot be serialized, only the weights are saved, and announced.

    Raises:
        UserError: A file cannot be written, for example on a full disk.
    """
    write = folder.write
    if not folder.is_written and model.distribute_strategy.extended.divides_state:
        write = _write_and_delete  # every worker takes part in gathering divided variables
    try:
        write(folder.model, model.save)
    except (UserError, TrainingError):
        raise
    except Exception as error:  # any exception of a user's class
        write(folder.weights, model.save_weights)
        announce(
            f"{type(model).__name__} cannot be saved as a whole ({explain_exception(error)}): only"
            f" the weights are saved, in {folder.weights}; read them with model.load_weights"
        )


def _write_and_delete(path: Path, save: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / path.name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunParts:
    """The model and the data of a run.

    Attributes:
        plan: Batches and learning rate.
        model: The compiled model.
        fit: Arguments of `model.fit` that concern the data.
        source: Description of the origin of the data.
        training_images: Number of training samples; `None` if unknown.
        validation_images: Number of validation samples; `None` if unknown or without validation.
        arrays: The training arrays. A resumed run has to train on equal arrays. Empty if the data
            are not arrays.
    """

    plan: TrainPlan
    model: keras.Model
    fit: Mapping[str, Any]
    source: str
    training_images: int | None
    validation_images: int | None
    arrays: tuple[Any, ...]

    def describe_data(self) -> str | None:
        """Describe the training arrays by number and hash; `None` without arrays.

        The description does not depend on the folder of the data.
        """
        if not self.arrays:
            return None
        digest = hashlib.sha256()
        for array in self.arrays:
            digest.update(np.ascontiguousarray(array).data)
        return f"{self.training_images} images with SHA-256 {digest.hexdigest()[:12]}"


def make_image_parts(
    config: TrainConfig, data: ImageData, strategy: "ExactStrategy", plan: TrainPlan
) -> RunParts:
    """Make the built-in model and the batches of its images."""
    training, validation = make_pipelines(config, data, plan)
    return RunParts(
        plan=plan,
        model=make_model(config, data, strategy, plan),
        fit={
            "x": training,
            "validation_data": validation if config.validate else None,
            "shuffle": False,  # the pipeline shuffles
        },
        source=data.source,
        training_images=len(data.train_images),
        validation_images=len(data.test_images),
        arrays=(data.train_images, data.train_labels),
    )


def make_own_parts(
    config: TrainConfig, strategy: "ExactStrategy", saved: Mapping[str, Any] | None
) -> RunParts:
    """Load the user's functions, and make the model and the data.

    Args:
        config: The settings, with `model`.
        strategy: The strategy that trains the model.
        saved: The saved plan of a resumed run; `None` for a new run.

    Raises:
        UserError: The functions fail, or their model or data cannot be used for training.
    """
    functions = load_functions(config.model or "", config.data or "data")
    plan, data = load_own_data(
        config, functions, replicas=strategy.num_replicas_in_sync, saved=saved
    )
    rate = None if saved is None else plan.learning_rate
    model = make_own_model(config, functions, data, strategy, plan, rate=rate)
    validation = data.validation if config.validate else None
    arguments = dataclasses.replace(data, validation=validation).fit_arguments(
        batch=plan.global_batch, validation_batch=plan.validation_batch
    )
    return RunParts(
        plan=dataclasses.replace(plan, learning_rate=read_compiled_rate(model)),
        model=model,
        fit=arguments,
        source=f"{functions.data_name}() of {Path(functions.files[-1]).name}",
        # If the number is unknown, all data are read once to count the samples, unless the train
        # step counts them.
        training_images=data.known_samples()
        or (None if can_count_images(model) else data.count_samples()),
        validation_images=UserData(training=data.validation).known_samples(),
        arrays=_as_arrays(data),
    )


def load_own_data(
    config: TrainConfig,
    functions: UserFunctions,
    *,
    replicas: int,
    saved: Mapping[str, Any] | None = None,
) -> tuple[TrainPlan, UserData]:
    """Load the user's data, and plan their batches; see `make_own_parts`.

    Returns:
        The plan and the data. In the plan of a new run, the learning rate is 0.0, a placeholder for
        the rate of the compiled model.
    """
    if saved is None:
        plan = dataclasses.replace(make_plan(config, replicas=replicas), learning_rate=0.0)
    else:
        plan = make_resumed_plan(saved, replicas=replicas)
    data = functions.load_data(plan.global_batch)
    batch, validation_batch = config.batch_size, config.val_batch_size
    functions.check_batch(
        data,
        None if batch == Batches.batch_size else batch,
        None if validation_batch == Batches.val_batch_size else validation_batch,
    )
    if (config.monitor or "").startswith("val_") and data.validation is None:
        raise UserError(
            f"monitor={config.monitor} needs validation data, but {functions.data_name}()"
            " returns none: return (training, validation), or monitor a metric of the training"
        )
    if not data.has_arrays and not functions.takes_batch:
        # A resumed run reads a batch as well: reading shuffled data changes the order of the next
        # epoch.
        first = data.first_batch()
        plan = plan if saved is not None else dataclasses.replace(plan, global_batch=first)
    return plan, data


def make_own_model(
    config: TrainConfig,
    functions: UserFunctions,
    data: UserData,
    strategy: "ExactStrategy",
    plan: TrainPlan,
    *,
    rate: float | None = None,
) -> keras.Model:
    """Make the user's model in the strategy's scope; see `make_own_parts`.

    Args:
        config: The settings.
        functions: The user's functions.
        data: The user's data.
        strategy: The strategy that trains the model.
        plan: The batches.
        rate: Learning rate for `model.optimizer`; `None` scales the rate of the compiled model.
    """
    name = f"{functions.build_name}()"

    def make() -> keras.Model:
        model = check_model_result(functions.make_model(), function=name)
        if data.has_arrays or functions.takes_batch:
            scale_compiled_rate(
                model,
                global_batch=plan.global_batch,
                reference_batch=config.batch_size,
                rule=config.lr_rule,
            )
        if rate is not None:
            set_compiled_rate(model, rate)
        return model

    model = strategy.build(make)
    with strategy.scope():
        check_input(model, data.training, function=name)
        check_input(model, data.validation, what="validation data", function=name)
    if config.xla is not None:
        model.jit_compile = config.xla
    return model


def _as_arrays(data: UserData) -> tuple[Any, ...]:
    """Return the training data as NumPy arrays; empty if they are not arrays, or hold objects."""
    if not data.has_arrays:
        return ()
    leaves = [leaf for leaf in keras.tree.flatten(data.training) if leaf is not None]
    arrays = [np.asarray(leaf) for leaf in leaves]
    return () if any(array.dtype == object for array in arrays) else tuple(arrays)
