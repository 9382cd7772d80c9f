"""A faster dropout on CPUs."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import random as keras_random

from ..fused_dropout import fused_dropout, fusible
from .draws import blocks_to_draw, drawing_for
from .replacing import replace


@replace(keras_random, "dropout")
def _dropout(
    original: Callable[..., Any],
    inputs: Any,
    rate: Any,
    noise_shape: Any = None,
    seed: Any = None,
) -> Any:
    """In one pass where that pays, under kdist's strategy."""
    strategy = tf.distribute.get_strategy()
    if not hasattr(strategy, "draws"):
        return original(inputs, rate, noise_shape, seed)
    with drawing_for(inputs):
        if not fusible(inputs, rate, noise_shape):
            return original(inputs, rate, noise_shape, seed)
        blocks = blocks_to_draw(tf.shape(inputs))
        seed = keras_random._cast_seed(keras_random.draw_seed(seed))
    return fused_dropout(inputs, rate, seed, blocks)
