"""What a training was started with, to tell whether a checkpoint is of the same one."""

import json
import re
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from .export import described_model
from .options import CheckpointOptions

# A layer's first values are restored with all others.
_IRRELEVANT = re.compile(
    r"name|seed|trainable|batch_shape|.*_initializer|build_config|shared_object_id"
)

_ANY = "any"


def about_run(model: keras.Model, steps: int | None, options: CheckpointOptions) -> dict[str, Any]:
    """Return what a generation says of its training, besides where it was.

    Args:
        model: The compiled model.
        steps: As for `run_settings`.
        options: Of the checkpoints.
    """
    settings = run_settings(model, steps=steps, data=options.data, any_rate=options.any_rate)
    return {
        "settings": settings,
        "model": described_model(model),
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
    }


def run_settings(
    model: keras.Model, *, steps: int | None, data: str | None = None, any_rate: bool = False
) -> dict[str, Any]:
    """Return what has to be the same when a training is resumed, as values that JSON can hold.

    Args:
        model: The compiled model.
        steps: Steps in an epoch; `None` where that is not known.
        data: What else is known of the data.
        any_rate: Whether the learning rate may be another.
    """
    layers = [_layer(one) for one in _upstream.flatten_layers(model)]
    plain: dict[str, Any] = _plain(
        {
            "layers": [one for one in layers if one is not None],
            "optimizers": [
                _optimizer(one, any_rate=any_rate) for one in _upstream.optimizers_of(model)
            ],
            "loss": _of_compile(model, "loss"),
            "loss_weights": _of_compile(model, "loss_weights"),
            "data": {
                "steps": steps,
                "arrays": _upstream.array_sizes(model),
                "description": data,
            },
        }
    )
    return plain


def first_setting_that_differs(
    here: Mapping[str, Any], saved: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """Return where two settings differ, with the value here and the saved one."""
    return _difference("", dict(here), json.loads(json.dumps(saved)))


def _difference(at: str, here: Any, saved: Any) -> tuple[str, Any, Any] | None:
    if isinstance(here, dict) and isinstance(saved, dict):
        for key in [*saved, *(key for key in here if key not in saved)]:
            found = _difference(f"{at}.{key}" if at else key, here.get(key), saved.get(key))
            if found:
                return found
        return None
    if isinstance(here, list) and isinstance(saved, list) and len(here) == len(saved):
        pairs = enumerate(zip(here, saved, strict=True))
        found_all = (_difference(f"{at}[{i}]", own, other) for i, (own, other) in pairs)
        return next((found for found in found_all if found), None)
    return None if here == saved or _ANY in (here, saved) else (at, here, saved)


def _layer(layer: keras.layers.Layer) -> dict[str, Any] | None:
    """Kind and options of a layer without layers of its own; `None` for others."""
    if _upstream.flatten_layers(layer):
        return None
    return {"class": type(layer).__name__} | _config(layer) | {"dtype": layer.dtype_policy.name}


def _optimizer(optimizer: keras.optimizers.Optimizer, *, any_rate: bool) -> dict[str, Any]:
    config = {"class": type(optimizer).__name__, **_config(optimizer)}
    if _upstream.is_average_warmed_up(optimizer):
        config["ema_warmup"] = True
    # The rate of a model that has been trained is its state, and is restored.
    has_begun = _upstream.steps_taken(optimizer) > 0
    return dict(_without_rates(config)) if has_begun or any_rate else config


def _without_rates(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _ANY if key == "learning_rate" else _without_rates(item)
            for key, item in value.items()
        }
    return [_without_rates(item) for item in value] if isinstance(value, list) else value


def _config(thing: Any) -> dict[str, Any]:
    try:
        return dict(keras.saving.serialize_keras_object(thing).get("config") or {})
    except Exception:  # a user's own get_config may raise anything
        return {}


def _of_compile(model: keras.Model, name: str) -> Any:
    try:
        return (model.get_compile_config() or {}).get(name)
    except Exception:  # as for _config
        return None


def _plain(value: Any) -> Any:
    """The value without names, which Keras numbers anew in every process, and without objects."""
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if not _IRRELEVANT.fullmatch(str(k))}
        return {str(key): _plain(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__
