"""Find the batch norms of a model."""

import math

import keras

from .. import _upstream

SMALL_BATCH = 16
"""Values per channel below which a batch's statistics are too noisy: at 16, its mean is off by a
quarter of a standard deviation (1 / sqrt(16)), and accuracy falls (Wu & He 2018, "Group
Normalization", figure 1)."""


def batch_norms(layer: keras.layers.Layer) -> list[keras.layers.BatchNormalization]:
    """Return every batch norm inside a model or layer, including nested ones, each once."""
    return [
        one
        for one in _upstream.flatten_layers(layer)
        if isinstance(one, keras.layers.BatchNormalization)
    ]


def unsynchronized_batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the batch norms that train on the statistics of one replica's samples."""
    if getattr(model.distribute_strategy, "sees_global_batch", False):
        return []
    return [norm for norm in batch_norms(model) if norm.trainable and not norm.synchronized]


def moving_statistics(model: keras.Model) -> list[keras.Variable]:
    """Return the moving means and variances of the batch norms that are not synchronized."""
    norms = [norm for norm in unsynchronized_batch_norms(model) if norm.built]
    return [variable for norm in norms for variable in (norm.moving_mean, norm.moving_variance)]


def values_per_channel(norm: keras.layers.BatchNormalization, samples: int) -> int | None:
    """Return how many values per channel the statistics have; `None` if the shape is unknown."""
    shape = (norm.get_build_config() or {}).get("input_shape")
    if shape is None:
        return None
    positions = [size for axis, size in enumerate(shape) if axis not in (0, norm.axis % len(shape))]
    return None if None in positions else samples * math.prod(positions)
