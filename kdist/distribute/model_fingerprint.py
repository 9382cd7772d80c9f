"""What has to be the same about a model on all workers."""

import warnings
from collections.abc import Callable
from typing import Any

import keras

from .. import _upstream
from .plain_config import LAMBDA, plain_config

_COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics")


def fingerprint(model: keras.Model) -> dict[str, Any]:
    """Describe a model that is about to be trained or evaluated, by name, for comparison."""
    return {
        "the model's class": type(model).__name__,
        "the number of weights": len(model.variables),
        "the dtype policy": model.dtype_policy.name,
        "run_eagerly": bool(model.run_eagerly),
    }


def settings(model: keras.Model) -> dict[str, Any]:
    """Describe how a model computes and is trained, in as much detail as Keras can save."""
    optimizers = [_described(optimizer) for optimizer in _upstream.optimizers_of(model)]
    compiled = _upstream.compile_arguments(model)
    trained = {id(variable) for variable in model.trainable_variables}
    return {
        # By their place: their names count the layers that a worker has made before.
        "weights": [
            f"{tuple(v.shape)} {v.dtype}{', trained' * (id(v) in trained)}" for v in model.variables
        ],
        **{"optimizer" if not at else f"optimizer {at}": one for at, one in enumerate(optimizers)},
        **{name: _serialized(compiled.get(name)) for name in _COMPILED},
        **(_plain(model.get_config) or {}),
    }


def _described(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    config = _plain(optimizer.get_config)
    if config is None:  # as of a schedule of the user's that cannot be saved
        config = {name: one for name, one in vars(optimizer).items() if _is_setting(name, one)}
        config["learning_rate"] = _upstream.schedule_name(optimizer)
    for one in (config, config.get("inner_optimizer")):
        # A plain rate is the chief's on all workers; a schedule is each worker's own.
        if isinstance(one, dict) and isinstance(one.get("learning_rate"), int | float):
            del one["learning_rate"]
    return {"class": type(optimizer).__name__, **config}


def _is_setting(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and not name.startswith("_") and name != "built"


def _plain(serialize: Callable[[], Any]) -> Any:
    """Return a configuration for comparison; `None` if the object cannot be saved."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain_config(serialize())
    except Exception:  # Keras's or the user's own: what it does not save is not compared
        return None


def _serialized(value: Any) -> Any:
    """Describe a loss or metrics, by their names where Keras cannot save them."""
    if isinstance(value, dict):
        return {str(name): _serialized(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_serialized(one) for one in value]
    name = getattr(value, "__name__", type(value).__name__)
    if name == "<lambda>":
        return LAMBDA
    found = _plain(lambda: keras.saving.serialize_keras_object(value))
    if not isinstance(value, keras.losses.Loss | keras.metrics.Metric):
        return name if found is None and value is not None else found
    # Not all of Keras's own losses save their arguments, and few of the user's.
    own = {name: one for name, one in vars(value).items() if _is_setting(name, one)}
    arguments = _plain(lambda: _upstream.function_arguments(value))
    return {"class": name, **own, **(arguments or {}), **(found or {})}
