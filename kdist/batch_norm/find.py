"""Find the batch norms of a model."""

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
    if _upstream.hooks_of(model) is not None:
        return []
    return [norm for norm in batch_norms(model) if norm.trainable and not norm.synchronized]
