"""Patch activations of several operations: compute each in one pass on CPUs."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import nn as keras_nn

from ..hooks import StrategyHooks
from ..patching import Patch


def _activation(original: Callable[..., Any], x: Any, *arguments: Any, **options: Any) -> Any:
    """Use the strategy's kernel if it supports the inputs."""
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, StrategyHooks):
        return original(x, *arguments, **options)
    return strategy.fused_activation(original, x, *arguments, **options)


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
