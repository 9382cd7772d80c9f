"""Patch activations of several operations: compute each in one pass on CPUs."""

from collections.abc import Callable
from typing import Any

from keras.src.backend.tensorflow import nn as keras_nn

from ..hooks import replica_hooks
from ..one_device import traced_strategy
from ..patching import Patch


def _activation(original: Callable[..., Any], x: Any, *arguments: Any, **options: Any) -> Any:
    """Use the strategy's kernel in a step, if it supports the inputs."""
    hooks = (
        traced_strategy() or replica_hooks()
    )  # a model that is exported or called outside a step stays as it is
    fused = None if hooks is None else hooks.fused_activation(original, x, *arguments, **options)
    return original(x, *arguments, **options) if fused is None else fused


PATCHES = tuple(
    Patch(
        owner=keras_nn,
        name=name,
        replacement=_activation,
        why="Reads and writes all values once per operation of the activation and of its gradient.",
        canary="test_an_activation_is_several_operations",
    )
    for name in ("gelu", "silu", "hard_silu")
)
