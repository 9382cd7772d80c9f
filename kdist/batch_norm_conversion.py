"""Another kind of batch normalization in a model that exists."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from . import _upstream
from .batch_norms import batch_norms
from .errors import UserError
from .group_norm_conversion import with_group_norms
from .layers import SyncBatchNormalization


def convert_batch_norm(model: keras.Model, *, to: str) -> keras.Model:
    """Change every batch norm of a model, nested ones too, into another kind.

    | `to` | every batch norm becomes | statistics |
    | --- | --- | --- |
    | `"synchronized"` | `kdist.layers.SyncBatchNormalization` | of the global batch |
    | `"stock"` | `keras.layers.BatchNormalization()` | of each replica's own batch |
    | `"frozen"` | what it is, with `trainable = False` | the moving ones, as they are now |
    | `"group"` | `keras.layers.GroupNormalization` | of each sample; none are kept |

    The first three change the layers in place and return the same model: weights, moving
    statistics, names, layers shared between models and the optimizer's state are what they were,
    and so is every output at inference. A compiled model stays compiled. Compile it again after
    `"frozen"`, and to train gamma and beta after undoing that: a frozen layer's weights are no
    longer among those to train.

    `"group"` keeps gamma and beta and drops the moving statistics, so outputs change and the model
    has to be trained on; a warning says so. A Functional or Sequential model is left as it is, and
    a new one returned, which shares all its other layers with it. A subclassed model, and a layer
    that holds batch norms of its own, is changed in place. Compile the model again. As many groups
    are made, 32 at most, as leave 16 channels or more in each; positions hidden by a mask count.

    Save after `to="stock"` for a file that opens without kdist. Under a
    strategy, new variables are made in the scope that the model was made in.

    Args:
        model: A Functional, Sequential or subclassed model; built, for `to="group"`. A batch norm
            of a subclass of Keras's, or with `renorm`, stays what it is, and only its
            `synchronized` is set.
        to: `"synchronized"`, `"stock"`, `"frozen"` or `"group"`.

    Returns:
        The model with its batch norms changed.

    Raises:
        UserError: Another `to`, not a model, or a model that cannot be changed so.

    Example:
        ```python
        model = kdist.convert_batch_norm(model, to="stock")
        model.save("model.keras")
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
            f" {len(norms)} batch norms are dropped and outputs change: train the model on",
            stacklevel=2,
        )
        return with_group_norms(model)
    if to == "stock":
        _refuse_own_subclasses(norms)
    for norm in norms:
        _CHANGES[to](norm)
    for one in (model, *_upstream.flatten_layers(model)):
        if isinstance(one, keras.Model):
            # What was traced of the layers before they changed.
            one.train_function = one.test_function = one.predict_function = None
    return model


# The two classes have the same variables and attributes and differ in what they compute. So an
# instance can change between them in place, where a new one would be unknown to the graph, the
# optimizer and every other holder of the old one.
def _synchronize(norm: Any) -> None:
    if type(norm) is keras.layers.BatchNormalization and not norm.renorm:
        norm.__class__ = SyncBatchNormalization
    norm.synchronized = True


def _make_stock(norm: Any) -> None:
    if type(norm) is SyncBatchNormalization:
        norm.__class__ = keras.layers.BatchNormalization
    norm.synchronized = False


def _freeze(norm: Any) -> None:
    norm.trainable = False


_CHANGES: dict[str, Callable[[Any], None]] = {
    "synchronized": _synchronize,
    "stock": _make_stock,
    "frozen": _freeze,
}


def _refuse_own_subclasses(norms: list[Any]) -> None:
    for norm in norms:
        if isinstance(norm, SyncBatchNormalization) and type(norm) is not SyncBatchNormalization:
            raise UserError(
                f"{norm.name} is a {type(norm).__name__}, a subclass of SyncBatchNormalization that"
                " Keras's layer may not stand in for: replace it in the model's code"
            )
