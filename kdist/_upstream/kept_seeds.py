"""`kept_seeds`: what `keras.utils.set_random_seed` sets in a block is as before after it."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR
from keras.src.utils.rng_utils import GLOBAL_RANDOM_SEED

from .drawn_seeds import seed_state, set_seed_state


@contextlib.contextmanager
def kept_seeds() -> Iterator[None]:
    """Restore the random numbers of Python, NumPy, TensorFlow and Keras after the block."""
    python, numpy = random.getstate(), np.random.get_state()
    names = (GLOBAL_RANDOM_SEED, GLOBAL_SEED_GENERATOR)
    of_keras = {name: global_state.get_global_attribute(name) for name in names}
    of_tensorflow = seed_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        for name, value in of_keras.items():
            global_state.set_global_attribute(name, value)
        tf.random.set_seed(of_tensorflow[0])  # also where there was none
        set_seed_state(of_tensorflow)
