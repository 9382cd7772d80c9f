"""The random generators that a program draws from, and Keras's generator for `seed=None`."""

import contextlib
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import (
    GLOBAL_SEED_GENERATOR,
    SeedGenerator,
    global_seed_generator,
    make_default_seed,
)
from keras.src.utils.rng_utils import GLOBAL_RANDOM_SEED, get_random_seed
from tensorflow.python.eager import context

from .hooks import StrategyHooks
from .models import distribute

# An attribute of a global generator: the generators that continue it, by strategy.
_GENERATORS_BY_STRATEGY = "_kdist_generators"


def seed_digest() -> str:
    """Return a digest of the seed state, equal on workers that draw the same seeds next."""
    return hashlib.sha256(json.dumps(seed_state()).encode()).hexdigest()


def seed_state() -> list[Any]:
    """Return the state that decides the next seeds, as values that JSON can hold.

    Before a seed is set, the values are `None`, as nothing decides the next seeds.
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


@contextlib.contextmanager
def keep_seeds() -> Iterator[None]:
    """Restore the random states of Python, NumPy, TensorFlow and Keras after the `with` block."""
    names = (GLOBAL_RANDOM_SEED, GLOBAL_SEED_GENERATOR)
    keras_state = {name: global_state.get_global_attribute(name) for name in names}
    python_state, numpy_state = random.getstate(), np.random.get_state()
    tensorflow_state = seed_state()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for name, value in keras_state.items():
            global_state.set_global_attribute(name, value)
        tf.random.set_seed(tensorflow_state[0])  # even if there was no seed
        set_seed_state(tensorflow_state)


class _GlobalSeed(SeedGenerator):
    """The generator for `seed=None`, created before a step that may use the generator.

    The generator takes its seed from Python's `random` at its first use, as Keras's generator does.
    The time of this draw matters: the order of a `PyDataset`, for example, draws from `random`,
    too.
    """

    def __init__(self, *, is_due: bool = True, is_alone: bool = True) -> None:
        before = random.getstate()
        super().__init__()
        random.setstate(before)
        self.is_due, self._is_alone = is_due, is_alone

    def next(self, ordered: bool = True) -> Any:
        if self.is_due:
            self.is_due = False
            seed = make_default_seed()
            value = self.state._value
            if self._is_alone:  # several workers need the same seed
                with tf.init_scope():
                    for copy in getattr(value, "values", (value,)):
                        copy.assign([seed, 0])
        return super().next(ordered)


def global_seed(strategy: tf.distribute.Strategy) -> SeedGenerator:
    """Return the generator for `seed=None`, copied to every replica."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    own = None if generator is None else generator.state._value
    if own is not None and getattr(own, "_distribute_strategy", None) is strategy:
        return generator
    with tf.init_scope(), strategy.scope():
        # Several workers would have to make the variable together.
        is_alone = getattr(strategy, "workers", 1) == 1
        if generator is None:
            generator = _GlobalSeed(is_alone=is_alone)
            use_global_seed(generator)
        value = generator.state._value
        is_copied = isinstance(value, tf.distribute.DistributedValues)
        if is_copied and is_alone and value._distribute_strategy is not strategy:
            # The steps of each strategy keep the generator that they were traced with.
            generators = vars(generator).setdefault(
                _GENERATORS_BY_STRATEGY, {value._distribute_strategy: generator}
            )
            if strategy not in generators:
                generators[strategy] = _GlobalSeed(is_due=getattr(generator, "is_due", False))
            generator = generators[strategy]
            vars(generator)[_GENERATORS_BY_STRATEGY] = generators
            generator.state.assign(value.values[0].numpy())
            use_global_seed(generator)
        distribute([generator.state], strategy)
    return generator


def use_global_seed(generator: SeedGenerator) -> None:
    """Use the generator in the current thread: Keras has a generator per thread."""
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generator)


def random_seed() -> int | None:
    """Return the seed that was given to `keras.utils.set_random_seed` or `tf.random.set_seed`."""
    seed: int | None = get_random_seed()
    return context.global_seed() if seed is None else seed


def global_seed_state() -> keras.Variable | None:
    """Return the state of this thread's generator for `seed=None`; `None` if there is none yet."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return None if generator is None else generator.state


def make_global_seed_state(strategy: tf.distribute.Strategy) -> keras.Variable:
    """Return the state of the generator for `seed=None`; create the generator if needed."""
    if isinstance(strategy, StrategyHooks):
        generator = global_seed(strategy)
        generator.is_due = False
        return generator.state
    return global_seed_generator().state
