"""Replace a model's batch norms with group norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from .. import _upstream
from ..errors import UserError
from .find import batch_norms

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
                _upstream.replace_sublayers(layer, convert)
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
        flags = [(layer, layer.trainable) for layer in _upstream.flatten_layers(clone)]
        clone.trainable = False
        for layer, trainable in flags:
            layer.trainable = trainable
    return clone
