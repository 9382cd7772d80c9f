"""Patch dropout: draw by the sample's place, and use a faster kernel on CPUs."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random

from ..draws import blocks_to_draw, drawing_for
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
    """Use the strategy's kernel if it supports the inputs, and draw for the rows of `inputs`."""
    strategy = traced_strategy() or tf.distribute.get_strategy()
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
        why="Draws by shape, which does not show the rows' place in the global batch; on CPUs it"
        " draws sequentially, and stores the random numbers for the gradient.",
        canary="test_dropout_keeps_its_random_numbers",
    ),
)
