"""Predictions that are averaged over several views of each image."""

from collections.abc import Sequence
from typing import Any

import keras

from .options import Views


def averaged_over_views(model: keras.Model, views: Views, image_shape: Sequence[int]) -> Any:
    """Return a model that averages what a model predicts for views of its images.

    Args:
        model: Takes `(images, height, width, channels)` and returns probabilities.
        views: Which views, as in `EvaluateOptions`.
        image_shape: Height, width and channels, height and width at least 2.

    Source: Jordan 2024 (arXiv:2404.00498), section 3.5, who averages logits.
    """
    if views == "none":
        return model
    images = keras.Input(tuple(image_shape))
    means = [_mirrored_mean(model, images)]
    if views == "mirror-shift":
        padded = keras.ops.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
        shifted = (padded[:, :-2, :-2], padded[:, 2:, 2:])
        # The images themselves count as much as both others together.
        means = [*means * 2, *(_mirrored_mean(model, one) for one in shifted)]
    return keras.Model(images, _mean(means))


def _mirrored_mean(model: keras.Model, images: Any) -> Any:
    return _mean([model(images), model(keras.ops.flip(images, axis=2))])


def _mean(predictions: Sequence[Any]) -> Any:
    if len(predictions) == 1:
        return predictions[0]
    # In mixed precision, too, the probabilities stay in full precision.
    return keras.layers.Average(dtype=predictions[0].dtype)(predictions)
