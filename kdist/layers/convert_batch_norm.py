"""Find the batch norms of a model, and synchronize them."""

from __future__ import annotations

from typing import Literal

import keras

from .._upstream.hooks import hooks_of
from .._upstream.models import flatten_layers
from ..errors import UserError


def batch_norms(layer: keras.layers.Layer) -> list[keras.layers.BatchNormalization]:
    """Return every batch norm inside a model or layer once, including nested batch norms."""
    return [
        inner
        for inner in flatten_layers(layer)
        if isinstance(inner, keras.layers.BatchNormalization)
    ]


def unsynchronized_batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the batch norms that train on the statistics of a single replica's samples."""
    if hooks_of(model) is not None:
        return []
    return [norm for norm in batch_norms(model) if norm.trainable and not norm.synchronized]


def convert_batch_norm(model: keras.Model, *, to: Literal["synchronized", "stock"]) -> keras.Model:
    """Synchronize all batch norms of a model for TensorFlow's strategies, or undo it.

    Sets the attribute `synchronized` of the layers, in place. Under kdist's strategies every batch
    norm has the statistics of the global batch, with or without the attribute.

    Args:
        model: A model of any kind. Its weights, optimizer and compilation stay.
        to: `"synchronized"` for statistics of the global batch, `"stock"` for statistics of each
            replica's samples.

    Returns:
        The same model.

    Raises:
        UserError: `to` is invalid.

    Examples:
        ```python
        model = kdist.convert_batch_norm(model, to="synchronized")
        ```
    """
    if to not in ("synchronized", "stock"):
        raise UserError(f'to is {to!r}, but has to be "synchronized" or "stock"')
    for norm in batch_norms(model):
        norm.synchronized = to == "synchronized"
    # Discard the functions that were traced before the layers changed.
    for layer in (model, *flatten_layers(model)):
        if isinstance(layer, keras.Model):
            layer.train_function = layer.test_function = layer.predict_function = None
    return model
