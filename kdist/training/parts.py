"""`RunParts`: what a run trains, the built-in model or one of the user's."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import ImageData
from ..errors import UserError
from ..user_model.data import ARRAYS
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


def without_input(parts: RunParts) -> RunParts:
    """Repeat the first batch, to measure how long a step takes without the input.

    Args:
        parts: What a run trains.

    Raises:
        UserError: The data are neither arrays nor a `tf.data.Dataset` of known size.
    """
    from ..performance.ablation import repeat_first_batch, repeat_first_rows

    fit = dict(parts.fit)
    if "batch_size" in fit:
        batch, arrays = fit.pop("batch_size"), [fit.pop(n) for n in ARRAYS if n in fit]
        steps = parts.plan.steps_per_epoch(parts.training_images or 0)
        batches = repeat_first_rows(tuple(arrays), batch=batch, steps=steps)
    else:
        batches = fit["x"]
        if not hasattr(batches, "cardinality") or int(batches.cardinality()) < 0:
            raise UserError(
                f"the input cannot be removed from {type(batches).__name__}, but only from arrays"
                " and from a tf.data.Dataset whose number of batches is known: return such data,"
                " perhaps with dataset.apply(tf.data.experimental.assert_cardinality(...))"
            )
        batches = repeat_first_batch(batches)
    return dataclasses.replace(parts, fit={**fit, "x": batches})
