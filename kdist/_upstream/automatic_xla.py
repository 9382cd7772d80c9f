"""`jit_compile="auto"` on one GPU."""

import weakref
from collections.abc import Callable
from typing import Any

from keras.src.trainers.trainer import Trainer, model_supports_jit

from .replacing import replace

_automatic: weakref.WeakSet[Any] = weakref.WeakSet()


def forget(model: Any) -> None:
    """What was chosen for a model that is about to be compiled anew."""
    _automatic.discard(model)


@replace(Trainer, "_resolve_auto_jit_compile")
def _resolve_auto_jit_compile(original: Callable[..., bool], model: Any) -> bool:
    """As Keras has it on one GPU without a strategy: it leaves XLA off under any strategy."""
    if getattr(model.distribute_strategy, "automatic_xla", False):
        _automatic.add(model)
        return bool(model_supports_jit(model))
    return original(model)


@replace(Trainer, "get_compile_config")
def _get_compile_config(original: Callable[..., Any], model: Any) -> Any:
    """What was asked for, so that a file of one GPU is trained on wherever it is opened."""
    config = original(model)
    return {**config, "jit_compile": "auto"} if config and model in _automatic else config
