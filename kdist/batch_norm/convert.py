"""Convert the batch norms of an existing model to another kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from .. import _upstream
from ..errors import UserError
from ..layers.sync_batch_normalization import SyncBatchNormalization, SynchronizedKerasLayer
from .find import batch_norms
from .group_norm import with_group_norms


def convert_batch_norm(model: keras.Model, *, to: str) -> keras.Model:
    """Convert every batch norm of a model, including nested ones, to another kind.

    | `to` | every batch norm becomes | statistics |
    | --- | --- | --- |
    | `"synchronized"` | `kdist.layers.SyncBatchNormalization` | of the global batch |
    | `"stock"` | `keras.layers.BatchNormalization()` | as Keras computes them |
    | `"frozen"` | the same layer with `trainable = False` | the current moving statistics |
    | `"group"` | `keras.layers.GroupNormalization` | of each sample; none are kept |

    The first three change the layers in place and return the same model. Weights, moving
    statistics, names, layers shared between models, the optimizer's state and every output at
    inference stay the same. A compiled model stays compiled. Compile it again after `"frozen"`, and
    again after setting `trainable = True` to train gamma and beta: a frozen layer's weights are no
    longer trainable weights.

    `"group"` keeps gamma and beta and drops the moving statistics, so outputs change and the model
    needs further training; a warning says so. A Functional or Sequential model is not changed:
    a new model is returned, which shares all its other layers with it. A subclassed model, or a
    layer that contains batch norms, is changed in place. Compile the model again. The number of
    groups is the largest, at most 32, that leaves at least 16 channels in each; masked positions
    count.

    After `"synchronized"`, files of the model and of its weights are those of Keras's own layers:
    they open without kdist. Under a strategy, new variables are created in the scope in which the
    model was created.

    Args:
        model: A Functional, Sequential or subclassed model; for `to="group"` it has to be built. A
            batch norm that is an instance of a subclass of Keras's layer, or has `renorm`, keeps
            its class, and only its `synchronized` is set.
        to: `"synchronized"`, `"stock"`, `"frozen"` or `"group"`.

    Returns:
        The model with its batch norms converted.

    Raises:
        UserError: `to` is invalid, `model` is not a model, or it cannot be converted.

    Example:
        ```python
        model = kdist.convert_batch_norm(model, to="frozen")
        model.compile("sgd", "mse")
        ```

    Source: Wu & He 2018, "Group Normalization", for `"group"`.
    """
    if not isinstance(model, keras.Model):
        raise UserError(f"received {type(model).__name__} for a model: pass a keras.Model")
    if to != "group" and to not in _CHANGES:
        raise UserError(f'received to={to!r}: pass "synchronized", "stock", "frozen" or "group"')
    norms = batch_norms(model)
    if not norms:
        warnings.warn(f"{model.name} has no batch normalization to convert", stacklevel=2)
        return model
    if to == "group":
        warnings.warn(
            f"{model.name}: group normalization keeps no statistics, so those of its"
            f" {len(norms)} batch norms are dropped and outputs change: train the model further",
            stacklevel=2,
        )
        return with_group_norms(model)
    if to == "stock":
        _refuse_own_subclasses(norms)
    for norm in norms:
        _CHANGES[to](norm)
    _forget_traces(model)
    return model


# The two classes have the same variables and attributes and differ in what they compute. So an
# instance can change between them in place, where a new one would be unknown to the graph, the
# optimizer and every other holder of the old one.
def _synchronize(norm: Any) -> None:
    if type(norm) is keras.layers.BatchNormalization and not norm.renorm:
        norm.__class__ = SynchronizedKerasLayer
        norm.saved_as_synchronized = norm.synchronized
    norm.synchronized = True


def _make_stock(norm: Any) -> None:
    if type(norm) in (SyncBatchNormalization, SynchronizedKerasLayer):
        norm.__class__ = keras.layers.BatchNormalization
    norm.synchronized = False


def _freeze(norm: Any) -> None:
    norm.trainable = False


_CHANGES: dict[str, Callable[[Any], None]] = {
    "synchronized": _synchronize,
    "stock": _make_stock,
    "frozen": _freeze,
}


def _forget_traces(model: keras.Model) -> None:
    """Drop functions traced before the layers changed."""
    for one in (model, *_upstream.flatten_layers(model)):
        if isinstance(one, keras.Model):
            one.train_function = one.test_function = one.predict_function = None


def _refuse_own_subclasses(norms: list[Any]) -> None:
    for norm in norms:
        if isinstance(norm, SyncBatchNormalization) and type(norm) not in (
            SyncBatchNormalization,
            SynchronizedKerasLayer,
        ):
            raise UserError(
                f"{norm.name} is a {type(norm).__name__}, a subclass of SyncBatchNormalization that"
                " Keras's layer may not be able to replace: replace it in the model's code"
            )
