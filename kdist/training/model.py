"""Make and save the compiled model of a run or a tuner's trial."""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..data import ImageData
from ..errors import UserError
from ..optimizers.schedules import make_schedule
from ..optimizers.table import l2_factor, make_optimizer
from ..runs.run_folder import RunFolder
from ..user_model.code_errors import reason_of
from .config import TrainConfig
from .networks import NETWORKS
from .plan import TrainPlan
from .preprocessing import seen_shape

if TYPE_CHECKING:
    import keras

    from ..distribute.exact_strategy import ExactStrategy


def make_model(
    config: TrainConfig, data: ImageData, strategy: "ExactStrategy", plan: TrainPlan
) -> "keras.Model":
    """Make and compile the network described by `config`, in the strategy's scope.

    Args:
        config: The settings.
        data: The images, for their number, shape and classes.
        strategy: The strategy that trains the model.
        plan: The learning rate and the batch.
    """
    import keras

    model = strategy.build(
        lambda: NETWORKS[config.network].build(
            config.to_dict(),
            input_shape=seen_shape(config, data.image_shape),
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
                run_schedule(config, plan, data),
                momentum=config.momentum,
                wd=config.wd,
                ema_momentum=config.ema_momentum,
                ema_warmup=config.ema_warmup,
            ),
            loss,
            metrics=["accuracy"],
            jit_compile="auto" if config.xla is None else config.xla,
            steps_per_execution="auto",
        )
    return model


def run_schedule(config: TrainConfig, plan: TrainPlan, data: ImageData) -> Any:
    """Make the learning rate schedule of a run, or return the rate itself if it is constant."""
    return make_schedule(
        config.schedule,
        plan.learning_rate,
        epochs=config.epochs,
        steps_per_epoch=plan.steps_per_epoch(len(data.train_images)),
        warmup_epochs=config.warmup_epochs,
        decay_epochs=config.decay_epochs,
        decay_rate=config.decay_rate,
    )


def save_stock_model(model: "keras.Model", folder: RunFolder) -> str | None:
    """Save the model in the run folder, as a file whose batch norms are Keras's own.

    Returns:
        A line, where only its weights can be saved; otherwise `None`.
    """
    with stock_batch_norms(model):
        fault = _fault_of_configuration(model)
        if fault is None:
            folder.save_model(model)
            return None
        folder.save_weights(model)
    return (
        f"{type(model).__name__} cannot be saved as a whole, as its get_config {fault}:"
        f" {folder.weights} has its weights, for load_weights"
    )


def _fault_of_configuration(model: "keras.Model") -> str | None:
    """Return why no file can hold the model's configuration, which a user's class may lack."""
    import keras

    try:
        json.dumps(keras.saving.serialize_keras_object(model))
    except (NotImplementedError, TypeError, ValueError):
        return "does not describe it"
    except Exception as error:  # whatever a user's class raises, its weights are saved
        return f"raises {reason_of(error)}"
    return None


@contextlib.contextmanager
def stock_batch_norms(model: "keras.Model") -> Iterator[None]:
    """Make a model's batch norms Keras's own for a while, but those of a user's own subclass."""
    from ..batch_norm.convert import convert_batch_norm
    from ..batch_norm.find import batch_norms

    try:
        if batch_norms(model):
            convert_batch_norm(model, to="stock")
    except UserError:  # a subclass of kdist's layer, whose file opens with kdist alone
        yield
        return
    try:
        yield
    finally:
        if batch_norms(model):
            convert_batch_norm(model, to="synchronized")
