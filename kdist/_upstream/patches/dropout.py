"""Dropout: which rows it draws for, and a faster one on CPUs."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random

from ..draws import blocks_to_draw, drawing_for
from ..hooks import StrategyHooks
from ..patching import Patch


def _dropout(
    original: Callable[..., Any],
    inputs: Any,
    rate: Any,
    noise_shape: Any = None,
    seed: Any = None,
) -> Any:
    """By the strategy's kernel where it takes the inputs; the rows are those of `inputs`."""
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, StrategyHooks):
        return original(inputs, rate, noise_shape, seed)
    with drawing_for(inputs):
        drop = strategy.fused_dropout(inputs, rate, noise_shape)
        if drop is None:
            return original(inputs, rate, noise_shape, seed)
        blocks = blocks_to_draw(tf.shape(inputs))
        return drop(keras_random._cast_seed(keras_random.draw_seed(seed)), blocks)


PATCHES = (
    Patch(
        owner=keras_random,
        name="dropout",
        replacement=_dropout,
        why="Draws for a shape, which no longer says where the rows are in the global batch; draws"
        " one number after another on CPUs, and keeps them for the gradient.",
        canary="test_dropout_keeps_what_it_has_drawn",
    ),
)
