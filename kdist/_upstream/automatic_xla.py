"""`jit_compile="auto"` on one GPU."""

from collections.abc import Callable
from typing import Any

from keras.src.trainers.trainer import Trainer, model_supports_jit

from .replacing import replace


@replace(Trainer, "_resolve_auto_jit_compile")
def _resolve_auto_jit_compile(original: Callable[..., bool], model: Any) -> bool:
    """As Keras has it on one GPU without a strategy: it leaves XLA off under any strategy."""
    if getattr(model.distribute_strategy, "automatic_xla", False):
        return bool(model_supports_jit(model))
    return original(model)
