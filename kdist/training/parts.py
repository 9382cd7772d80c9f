"""`RunParts`: what a run trains, the built-in model or one of the user's."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import ImageData
from .config import TrainConfig
from .model import make_model
from .pipelines import make_pipelines
from .plan import TrainPlan

if TYPE_CHECKING:
    import keras

    from ..distribute.exact_strategy import ExactStrategy


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunParts:
    """The model and the data of a run.

    Attributes:
        plan: Batches and learning rate.
        model: The compiled model.
        fit: Arguments of `model.fit` that are about the data.
        source: Where the data are from.
        training_images: Number of training samples; `None` if unknown.
        validation_images: Number of validation samples; `None` if there are none, or if unknown.
        arrays: What a run has to have in common with the one that it continues; empty if the data
            are no arrays.
    """

    plan: TrainPlan
    model: "keras.Model"
    fit: Mapping[str, Any]
    source: str
    training_images: int | None
    validation_images: int | None
    arrays: tuple[Any, ...]

    def describe_data(self) -> str | None:
        """Describe the arrays that are trained on, wherever they were found; `None` without any."""
        if not self.arrays:
            return None
        digest = hashlib.sha256()
        for array in self.arrays:
            digest.update(np.ascontiguousarray(array).data)
        return f"{self.training_images} images with SHA-256 {digest.hexdigest()[:12]}"


def image_parts(
    config: TrainConfig, data: ImageData, strategy: "ExactStrategy", plan: TrainPlan
) -> RunParts:
    """Make the built-in model and the batches of its images.

    Args:
        config: The settings.
        data: The images.
        strategy: The strategy that trains the model.
        plan: Batches and learning rate.
    """
    training, validation = make_pipelines(config, data, plan)
    return RunParts(
        plan=plan,
        model=make_model(config, data, strategy, plan),
        # The pipeline shuffles.
        fit={"x": training, "validation_data": validation, "shuffle": False},
        source=data.source,
        training_images=len(data.train_images),
        validation_images=len(data.test_images),
        arrays=(data.train_images, data.train_labels),
    )
