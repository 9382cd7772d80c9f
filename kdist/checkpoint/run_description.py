"""`describe_run`: the settings of a training, compared when it is resumed."""

import re
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from .._upstream.models import flatten_layers, optimizers_of
from .._upstream.optimizers import is_average_warmed_up, steps_taken
from .._upstream.resumed_data import array_sizes
from ..workers.agreement import ANY
from .checkpoint_options import CheckpointOptions
from .export import serialize_model

# Config entries that are not compared. Seeds and initializers only decide a layer's first values,
# and the checkpoint restores all values.
_IRRELEVANT = re.compile(
    r"name|seed|trainable|batch_shape|.*_initializer|build_config|shared_object_id"
)


def describe_run(
    model: keras.Model, steps: int | None, options: CheckpointOptions
) -> dict[str, Any]:
    """Return a JSON-compatible description of a training with `steps` per epoch.

    `"settings"` must be the same when the training is resumed.
    """
    layers = [_layer_config(layer) for layer in flatten_layers(model)]
    optimizers = [
        _optimizer_config(optimizer, rate_may_differ=options.rate_may_differ)
        for optimizer in optimizers_of(model)
    ]
    settings = {
        "layers": [layer for layer in layers if layer is not None],
        "optimizers": optimizers,
        "loss": _compile_argument(model, "loss"),
        "loss_weights": _compile_argument(model, "loss_weights"),
        "data": {"steps": steps, "arrays": array_sizes(model), "description": options.data},
    }
    return {
        "settings": _comparable_value(settings),
        "model": serialize_model(model),
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
    }


def _layer_config(layer: keras.layers.Layer) -> dict[str, Any] | None:
    """Return class and config of a layer; `None` for a layer that contains layers."""
    if flatten_layers(layer):
        return None
    return (
        {"class": type(layer).__name__}
        | _serialize_config(layer)
        | {"dtype": layer.dtype_policy.name}
    )


def _optimizer_config(
    optimizer: keras.optimizers.Optimizer, *, rate_may_differ: bool
) -> dict[str, Any]:
    config = {"class": type(optimizer).__name__, **_serialize_config(optimizer)}
    if is_average_warmed_up(optimizer):
        config["ema_warmup"] = True
    # The learning rate of a trained model is a part of its state, and is restored.
    has_begun = steps_taken(optimizer) > 0
    return dict(_drop_rates(config)) if has_begun or rate_may_differ else config


def _drop_rates(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: ANY if key == "learning_rate" else _drop_rates(item) for key, item in value.items()
        }
    return [_drop_rates(item) for item in value] if isinstance(value, list) else value


def _serialize_config(instance: Any) -> dict[str, Any]:
    try:
        return dict(keras.saving.serialize_keras_object(instance).get("config") or {})
    except Exception:  # a user's own get_config may raise anything
        return {}


def _compile_argument(model: keras.Model, name: str) -> Any:
    try:
        return (model.get_compile_config() or {}).get(name)
    except Exception:  # as for _serialize_config
        return None


def _comparable_value(value: Any) -> Any:
    """Return a value without the entries of `_IRRELEVANT`, and with class names for objects.

    Names are not compared, because Keras numbers them by process.
    """
    if isinstance(value, Mapping):
        kept = {key: entry for key, entry in value.items() if not _IRRELEVANT.fullmatch(str(key))}
        return {str(key): _comparable_value(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_comparable_value(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__
