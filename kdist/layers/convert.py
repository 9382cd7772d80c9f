"""Find the batch norms of a model, and convert them to a different kind."""

from __future__ import annotations

from typing import Any, Literal

import keras

from .._upstream.hooks import hooks_of
from .._upstream.models import flatten_layers
from ..errors import UserError
from ..layers.sync_batch_normalization import SyncBatchNormalization, SynchronizedKerasLayer


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
    """Convert every batch norm of a model, including nested batch norms, to a different kind.

    | `to` | every batch norm becomes | statistics |
    | --- | --- | --- |
    | `"synchronized"` | `kdist.layers.SyncBatchNormalization` | of the global batch |
    | `"stock"` | `keras.layers.BatchNormalization()` | as Keras computes them |

    The layers are changed in place. Weights, moving statistics, names, layers shared between
    models, the optimizer's state and every output at inference stay the same. A compiled model
    stays compiled.

    After `"synchronized"`, files of the model and its weights equal the files of a model with
    Keras's own layers, and open without kdist. Under a strategy, new variables are created in the
    scope of the model's creation.

    Args:
        model: A Functional, Sequential or subclassed model. An instance of a subclass of Keras's
            layer, or a layer with `renorm`, keeps its class; only its `synchronized` attribute is
            set.
        to: `"synchronized"` or `"stock"`.

    Returns:
        The same model.

    Raises:
        UserError: `to` is invalid, or a batch norm cannot be converted.

    Example:
        ```python
        model = kdist.convert_batch_norm(model, to="synchronized")
        ```
    """
    if to not in ("synchronized", "stock"):
        raise UserError(f'received to={to!r}: pass "synchronized" or "stock"')
    for norm in batch_norms(model):
        if to == "synchronized":
            _synchronize(norm)
        else:
            _make_stock(norm)
    # The functions were traced before the layers changed.
    for layer in (model, *flatten_layers(model)):
        if isinstance(layer, keras.Model):
            layer.train_function = layer.test_function = layer.predict_function = None
    return model


# Both classes have the same variables and attributes; only their computations differ. An instance
# therefore changes its class in place: a new instance would be unknown to the graph, the optimizer
# and every other holder of the layer.
def _synchronize(norm: Any) -> None:
    if type(norm) is keras.layers.BatchNormalization and not norm.renorm:
        norm.__class__ = SynchronizedKerasLayer
        norm.saved_as_synchronized = norm.synchronized
    norm.synchronized = True


def _make_stock(norm: Any) -> None:
    if type(norm) in (SyncBatchNormalization, SynchronizedKerasLayer):
        norm.__class__ = keras.layers.BatchNormalization
    elif isinstance(norm, SyncBatchNormalization):
        raise UserError(
            f"{norm.name} is a {type(norm).__name__}, a subclass of SyncBatchNormalization that"
            " Keras's layer may not be able to replace: replace it in the model's code"
        )
    norm.synchronized = False
