"""The batch norms of a model."""

import keras

from . import _upstream


def batch_norms(layer: keras.layers.Layer) -> list[keras.layers.BatchNormalization]:
    """Every batch norm inside a model or layer, nested ones too, each once."""
    return [
        one
        for one in _upstream.flatten_layers(layer)
        if isinstance(one, keras.layers.BatchNormalization)
    ]


def unsynchronized_batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Those that train on the statistics of one replica's samples."""
    return [norm for norm in batch_norms(model) if norm.trainable and not norm.synchronized]
