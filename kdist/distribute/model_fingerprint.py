"""What has to be the same about a model on all workers."""

from typing import Any

import keras

from .. import _upstream


def fingerprint(model: keras.Model) -> dict[str, Any]:
    """Describe a model that is about to be trained or evaluated, by name, for comparison."""
    optimizers = [_described(optimizer) for optimizer in _upstream.optimizers_of(model)]
    return {
        "the model's class": type(model).__name__,
        "the number of weights": len(model.variables),
        "the weights": "; ".join(f"{v.path} {tuple(v.shape)} {v.dtype}" for v in model.variables),
        "what is trained": "; ".join(v.path for v in model.trainable_variables),
        "the optimizer": "; ".join(optimizers),
        "the loss": _name(getattr(model, "loss", None)),
        "the dtype policy": model.dtype_policy.name,
        "run_eagerly": bool(model.run_eagerly),
    }


def _described(optimizer: keras.optimizers.Optimizer) -> str:
    settings = {
        name: value
        for name, value in sorted(optimizer.get_config().items())
        if isinstance(value, int | float | str) and name not in ("name", "learning_rate")
    }
    return f"{type(optimizer).__name__} {settings}"


def _name(loss: Any) -> str:
    if isinstance(loss, dict):
        return ", ".join(f"{name}: {_name(one)}" for name, one in loss.items())
    if isinstance(loss, list | tuple):
        return ", ".join(map(_name, loss))
    if loss is None or isinstance(loss, str):
        return str(loss)
    return getattr(loss, "__name__", type(loss).__name__)
