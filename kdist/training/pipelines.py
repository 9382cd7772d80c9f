"""Load the images of a run or a tuner's trial, and make their batches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import ImageData
from ..data.datasets import DATASETS
from .config import TrainConfig
from .plan import TrainPlan
from .preprocessing import preprocessing


def load_data(config: TrainConfig, *, announce: Callable[[str], None] = print) -> ImageData:
    """Load the images that `config` selects.

    Args:
        config: The settings.
        announce: Called with a line that names their source.

    Raises:
        UserError: They cannot be found, or `subset` is more than the number of training images.
    """
    data = DATASETS[config.dataset].load(config.data_dir, announce)
    return data if config.subset is None else data.subset(config.subset)


def make_pipelines(config: TrainConfig, data: ImageData, plan: TrainPlan) -> tuple[Any, Any]:
    """Make the batches of the training images and of the validation images.

    Args:
        config: The settings.
        data: The images.
        plan: The batches' sizes.

    Returns:
        Two `tf.data.Dataset`s of (images, labels); with label smoothing the labels are one-hot.
    """
    from ..data import evaluation_batches, training_batches

    def labels(of_images: Any) -> Any:  # Keras smooths one-hot labels only
        return np.eye(data.classes)[of_images] if config.label_smoothing else of_images

    prepared = preprocessing(config, data)
    training = training_batches(
        data.train_images,
        labels(data.train_labels),
        batch_size=plan.global_batch,
        seed=config.seed,
        standardization=prepared.standardization,
        augment=prepared.augment,
        shift=config.shift,
        whole_pixels=config.whole_pixels,
    )
    validation = evaluation_batches(
        prepared.evaluated(data.test_images),
        labels(data.test_labels),
        batch_size=plan.validation_batch,
        standardization=prepared.standardization,
    )
    return training, validation
