"""The seeds that TensorFlow draws for its operations, one after another, such as for shuffling."""

import hashlib
import json
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context


def seed_digest() -> str:
    """Return a text that is the same on workers that draw the same seeds next."""
    return hashlib.sha256(json.dumps(seed_state()).encode()).hexdigest()


def seed_state() -> list[Any]:
    """Return what decides the next seeds, as values that JSON can hold.

    Before a seed was set there is nothing to decide them.
    """
    if not hasattr(context.context(), "_rng"):
        return [None, None]
    return [context.global_seed(), context.context()._rng.getstate()]


def set_seed_state(state: list[Any]) -> None:
    """Draw the seeds from now on that another worker draws, from its `seed_state`."""
    seed, generator = state
    if generator is None:
        return
    version, numbers, gauss = generator
    tf.random.set_seed(seed)
    context.context()._rng.setstate((version, tuple(numbers), gauss))
