"""The input pipelines and the compiled model of a run, which a tuner's trial has too."""

from typing import TYPE_CHECKING, Any

from .config import TrainConfig
from .data import ImageData
from .optimizer_choice import make_optimizer, penalty
from .run_schedule import run_schedule

if TYPE_CHECKING:
    import keras

    from .strategy import MirroredStrategy


def make_pipelines(config: TrainConfig, data: ImageData, *, replicas: int) -> tuple[Any, Any]:
    """Batches of the training and of the validation images, as `config` says.

    Args:
        config: The settings.
        data: The images.
        replicas: How many replicas share a batch.

    Returns:
        Two `tf.data.Dataset`s of (images, labels); the labels are one-hot where they are smoothed.
    """
    from .data import Standardization, evaluation_batches, training_batches

    standardization = Standardization.of(data.train_images)
    training = training_batches(
        data.train_images,
        data.train_labels,
        batch_size=replicas * config.batch_size,
        seed=config.seed,
        standardization=standardization,
        augment=config.augment,
        shift=config.shift,
        whole_pixels=config.whole_pixels,
    )
    validation = evaluation_batches(
        data.test_images,
        data.test_labels,
        batch_size=replicas * config.val_batch_size,
        standardization=standardization,
    )
    if config.label_smoothing:  # Keras has it for one-hot labels only
        training, validation = (_one_hot(part, data.classes) for part in (training, validation))
    return training, validation


def make_model(
    config: TrainConfig,
    data: ImageData,
    strategy: "MirroredStrategy",
    *,
    learning_rate: float,
    steps_per_epoch: int,
) -> "keras.Model":
    """The WideResNet that `config` asks for, compiled in the strategy's scope.

    Args:
        config: The settings.
        data: The images, for their shape and classes.
        strategy: Where the model is trained.
        learning_rate: For all replicas together.
        steps_per_epoch: Batches of `make_pipelines`, for the learning rate's schedule.
    """
    import keras

    from .models import WideResNet

    model = strategy.build(
        lambda: WideResNet(
            config.depth,
            config.width,
            input_shape=data.image_shape,
            classes=data.classes,
            stem_pool=config.stem_pool,
            dropout=config.dropout,
            weight_decay=penalty(config.optimizer, config.wd),
        )
    )
    loss: Any = "sparse_categorical_crossentropy"
    if config.label_smoothing:
        loss = keras.losses.CategoricalCrossentropy(label_smoothing=config.label_smoothing)
    with strategy.scope():
        model.compile(
            make_optimizer(
                config.optimizer,
                run_schedule(config, learning_rate, steps_per_epoch=steps_per_epoch),
                momentum=config.momentum,
                wd=config.wd,
                ema_momentum=config.ema_momentum,
            ),
            loss,
            metrics=["accuracy"],
            jit_compile="auto" if config.xla is None else config.xla,
            steps_per_execution="auto",
        )
    return model


def _one_hot(batches: Any, classes: int) -> Any:
    import tensorflow as tf

    return batches.map(lambda images, labels: (images, tf.one_hot(labels, classes)))
