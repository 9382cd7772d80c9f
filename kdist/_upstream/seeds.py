"""The state of all random generators that a program draws from."""

import contextlib
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR
from keras.src.utils.rng_utils import GLOBAL_RANDOM_SEED
from tensorflow.python.eager import context


def seed_digest() -> str:
    """Return a text that is the same on workers that draw the same seeds next."""
    return hashlib.sha256(json.dumps(seed_state()).encode()).hexdigest()


def seed_state() -> list[Any]:
    """Return the state that decides the next seeds, as values that JSON can hold.

    Before a seed is set, its values are `None`: nothing decides the next seeds.
    """
    if not hasattr(context.context(), "_rng"):
        return [None, None]
    return [context.global_seed(), context.context()._rng.getstate()]


def set_seed_state(state: list[Any]) -> None:
    """Draw the same seeds as another worker from now on, by its `seed_state`."""
    seed, generator = state
    if generator is None:
        return
    version, numbers, gauss = generator
    tf.random.set_seed(seed)
    context.context()._rng.setstate((version, tuple(numbers), gauss))


def draws() -> tuple[Any, ...]:
    """Return the random states of Python, NumPy, TensorFlow and Keras."""
    names = (GLOBAL_RANDOM_SEED, GLOBAL_SEED_GENERATOR)
    of_keras = {name: global_state.get_global_attribute(name) for name in names}
    return random.getstate(), np.random.get_state(), of_keras, seed_state()


def set_draws(state: tuple[Any, ...]) -> None:
    """Restore the random states that `draws` has returned: the same numbers are drawn again."""
    python, numpy, of_keras, of_tensorflow = state
    random.setstate(python)
    np.random.set_state(numpy)
    for name, value in of_keras.items():
        global_state.set_global_attribute(name, value)
    tf.random.set_seed(of_tensorflow[0])  # even if there was no seed
    set_seed_state(of_tensorflow)


@contextlib.contextmanager
def kept_seeds() -> Iterator[None]:
    """Restore the random states of Python, NumPy, TensorFlow and Keras after the `with` block."""
    before = draws()
    try:
        yield
    finally:
        set_draws(before)
