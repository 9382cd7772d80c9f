"""Find the batch norms of a model, and convert them to another kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from .._upstream.hooks import hooks_of
from .._upstream.internals import flatten_layers, replace_sublayers
from ..errors import UserError
from ..layers.sync_batch_normalization import SyncBatchNormalization, SynchronizedKerasLayer


def batch_norms(layer: keras.layers.Layer) -> list[keras.layers.BatchNormalization]:
    """Return every batch norm inside a model or layer, including nested ones, each once."""
    return [
        one for one in flatten_layers(layer) if isinstance(one, keras.layers.BatchNormalization)
    ]


def unsynchronized_batch_norms(model: keras.Model) -> list[keras.layers.BatchNormalization]:
    """Return the batch norms that train on the statistics of one replica's samples."""
    if hooks_of(model) is not None:
        return []
    return [norm for norm in batch_norms(model) if norm.trainable and not norm.synchronized]


MOST_GROUPS = 32
FEWEST_CHANNELS = 16  # per group: the fewer, the nearer its outputs are to constants

Convert = Callable[[Any], Any]


def with_group_norms(model: keras.Model) -> keras.Model:
    """Replace every batch norm of a model with a `keras.layers.GroupNormalization`.

    Functional and Sequential models are rebuilt around their other layers, which both models share;
    in others the attributes that hold a batch norm are replaced. See `convert_batch_norm`.

    Raises:
        UserError: A batch norm is not built, or is where it cannot be replaced.
    """
    unbuilt = [norm.name for norm in batch_norms(model) if not norm.built]
    if unbuilt:
        raise UserError(
            f"{', '.join(unbuilt)} is not built yet, so its channels are unknown: call the model on"
            " a batch, or model.build(input_shape), before converting it to group normalization"
        )
    converted: dict[int, Any] = {}

    def convert(layer: Any) -> Any:
        if id(layer) not in converted:
            converted[id(layer)] = layer  # for a layer that refers to itself
            if isinstance(layer, keras.layers.BatchNormalization):
                converted[id(layer)] = _group_norm(layer)
            elif not batch_norms(layer):
                pass
            elif isinstance(layer, keras.Sequential) or hasattr(layer, "operations"):
                converted[id(layer)] = _rebuilt(layer, convert)
            else:
                replace_sublayers(layer, convert)
        return converted[id(layer)]

    with model.distribute_strategy.scope():
        result = convert(model)
    left = [norm.name for norm in batch_norms(result)]
    if left:
        raise UserError(
            f"{', '.join(left)} could not be replaced: hold batch norms in attributes, lists,"
            " tuples or dicts, or write the group normalization into the model's code"
        )
    return result


def groups(channels: int) -> int:
    """Return the number of groups for `channels`: a divisor of it."""
    most = max(1, min(MOST_GROUPS, channels // FEWEST_CHANNELS))
    return next(count for count in range(most, 0, -1) if channels % count == 0)


def _group_norm(norm: Any) -> Any:
    """A group norm with the batch norm's name, gamma, beta and options."""
    rank, channels = norm.input_spec.ndim, norm.input_spec.axes[norm.axis]
    axis = norm.axis % rank
    kept = {
        key: value
        for key, value in norm.get_config().items()
        if key in ("name", "trainable", "dtype", "epsilon", "center", "scale")
        or key.startswith(("beta_", "gamma_"))
    }
    kept |= {"axis": -1 if axis == rank - 1 else axis, "groups": groups(channels)}
    group_norm = keras.layers.GroupNormalization.from_config(kept)
    group_norm.build([channels if index == axis else None for index in range(rank)])
    for new, old in ((group_norm.gamma, norm.gamma), (group_norm.beta, norm.beta)):
        if old is not None:
            new.assign(old)
    return group_norm


def _call(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a layer as the batch norm it replaces was called, without `mask` and `training`."""
    if isinstance(layer, keras.layers.GroupNormalization):
        return layer(*args, **{key: kwargs[key] for key in kwargs if key == "inputs"})
    return layer(*args, **kwargs)


def _rebuilt(model: Any, convert: Convert) -> Any:
    """Rebuild a Functional or Sequential model with converted layers, not compiled."""
    # Keras would compile the clone, which fails where a loss is not registered for saving.
    compiled, model.compiled = model.compiled, False
    try:
        # Keras takes no call_function for a Sequential model, which needs none.
        graph = {} if isinstance(model, keras.Sequential) else {"call_function": _call}
        clone = keras.models.clone_model(model, clone_function=convert, **graph)
    finally:
        model.compiled = compiled
    if type(clone) is not type(model):
        raise UserError(
            f"{model.name} is a {type(model).__name__}, which only its own code can build: use"
            " group normalization in that code"
        )
    if not model.trainable:
        # Setting a model's flag sets its layers' too, some of which may differ.
        flags = [(layer, layer.trainable) for layer in flatten_layers(clone)]
        clone.trainable = False
        for layer, trainable in flags:
            layer.trainable = trainable
    return clone


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
    for one in (model, *flatten_layers(model)):
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
