"""How many images a model has trained on, and their losses, from the sums that Keras keeps."""

from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..errors import UserError


def count_images(model: Any) -> int:
    """Return how many images the model has seen since its metrics were last reset.

    Keras averages the loss of an epoch weighted by batch size, so the average's own `count` is the
    number of images over all replicas. It is right with a smaller last batch, with any sample
    weights and for a dataset of unknown size. Keras resets it when an epoch or a validation begins.
    Each replica's count is a float32: exact up to 2**24 images per epoch.

    Args:
        model: A compiled `keras.Model`.

    Returns:
        The images seen by all replicas together.

    Raises:
        UserError: If the model has its own `train_step` or `metrics`, which may not count, or
            counts in half precision. The message says to pass `total_images`.

    Example:
        >>> model.fit(images, labels)
        >>> count_images(model) == len(images)
        True
    """
    # Keras's own conversions leave a variable of several replicas as it is; TensorFlow's sums it.
    return int(tf.convert_to_tensor(_loss_average(model).count.value))


def counts_images(model: Any) -> bool:
    """Whether a compiled model counts the images that it trains on."""
    try:
        _loss_average(model)
    except UserError:
        return False
    return True


def sum_losses(model: Any) -> float:
    """Return the sum of the losses of the images that `count_images` counts.

    Raises:
        UserError: As `count_images`.
    """
    return float(tf.convert_to_tensor(_loss_average(model).total.value))


def _loss_average(model: Any) -> Any:
    if "train_step" in _upstream.overridden_steps(model):
        raise _uncountable(model, "its own train_step")
    if type(model).metrics is not keras.Model.metrics:
        raise _uncountable(model, "its own metrics property")
    for metric in model.metrics:
        if metric.name == "loss" and isinstance(metric, keras.metrics.Mean):
            if metric.count.dtype not in ("float32", "float64"):
                raise _uncountable(model, f"metrics in {metric.count.dtype}")
            return metric
    raise _uncountable(model, "no average of the loss")


def _uncountable(model: Any, reason: str) -> UserError:
    return UserError(
        f"The images that {type(model).__name__} trains on cannot be counted, because it has "
        f"{reason}: pass total_images=<images in one epoch>."
    )
