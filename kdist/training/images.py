"""The images of a run or a trial: loading, augmentation and batches."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import ImageData
from ..data.augmentation import AUGMENTATIONS
from ..data.datasets import DATASETS
from ..data.image_files import SAMPLE
from ..errors import UserError
from .config import TrainConfig, TrainPlan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The preparation of a run's images, for training and for evaluation.

    Attributes:
        image_shape: Height, width and channels of the network's input.
        augment: The `augment` argument of `training_batches`.
        standardization: The `standardization` argument of `training_batches` and
            `evaluation_batches`.
    """

    image_shape: tuple[int, int, int]
    augment: Any
    standardization: Callable[[Any], Any]

    def evaluated(self, images: Any) -> Any:
        """Return images for evaluation, not standardized: the center if cropped."""
        from ..data import center_crop

        height, width, _ = self.image_shape
        return (
            images if images.shape[1:3] == (height, width) else center_crop(images, (height, width))
        )


def preprocessing(config: TrainConfig, data: ImageData) -> Preprocessing:
    """Return the preparation of a run's images.

    Args:
        config: The settings.
        data: The images. Mean and deviation are computed from the training images.
    """
    augmentation = AUGMENTATIONS[config.augmentation]
    return Preprocessing(
        image_shape=augmentation.seen_shape(data.image_shape),
        augment=config.augment and augmentation.transforms(data),
        standardization=augmentation.standardization(data),
    )


def load_data(
    config: TrainConfig, *, announce: Callable[[str], None] = print, or_sample: bool = True
) -> ImageData:
    """Load the images that `config` selects.

    Args:
        config: The settings.
        announce: Called with a line that names the source of the images.
        or_sample: Whether the embedded sample may replace a data set that cannot be downloaded.
            Runs that are compared must train on the same data, so they pass `False`.

    Raises:
        UserError: The images cannot be found, or `subset` exceeds the number of training images.
    """
    dataset = DATASETS[config.dataset]
    data = dataset.load(config.data_dir, announce)
    if data.source == SAMPLE and not (or_sample or dataset.is_embedded):
        raise UserError(
            f"{config.dataset} was not found and could not be downloaded: pass --dataset sample to"
            " have all runs train on the embedded sample, or --data-dir"
        )
    return data if config.subset is None else data.subset(config.subset)


def make_pipelines(config: TrainConfig, data: ImageData, plan: TrainPlan) -> tuple[Any, Any]:
    """Make the batches of the training and validation images.

    Args:
        config: The settings.
        data: The images.
        plan: The batch sizes.

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
