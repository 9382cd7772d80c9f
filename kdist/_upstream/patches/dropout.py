"""Patch dropout: use a faster kernel on CPUs."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random

from ..hooks import StrategyHooks
from ..one_device import traced_strategy
from ..patching import Patch


def _dropout(
    original: Callable[..., Any],
    inputs: Any,
    rate: Any,
    noise_shape: Any = None,
    seed: Any = None,
) -> Any:
    """Use the strategy's kernel if it supports the inputs."""
    strategy = traced_strategy() or tf.distribute.get_strategy()
    if not isinstance(strategy, StrategyHooks):
        return original(inputs, rate, noise_shape, seed)
    drop = strategy.fused_dropout(inputs, rate, noise_shape)
    if drop is None:
        return original(inputs, rate, noise_shape, seed)
    return drop(keras_random._cast_seed(keras_random.draw_seed(seed)))


PATCHES = (
    Patch(
        owner=keras_random,
        name="dropout",
        replacement=_dropout,
        why="On CPUs, draws sequentially, and stores the random numbers for the gradient.",
        canary="test_dropout_keeps_its_random_numbers",
    ),
)
