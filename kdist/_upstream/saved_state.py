"""What Keras keeps of a training in private attributes, for checkpoints."""

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator

from .hooks import StrategyHooks
from .internals import global_seed
from .optimizer_steps import flatten_optimizers


def global_seed_state() -> keras.Variable | None:
    """The state of the generator behind `seed=None`, where this thread has made one."""
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return None if generator is None else generator.state


def make_global_seed_state(strategy: tf.distribute.Strategy) -> keras.Variable:
    """The state of the generator behind `seed=None`, made where this thread has none."""
    if isinstance(strategy, StrategyHooks):
        return global_seed(strategy).state
    return global_seed_generator().state


def trained_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The variables that an optimizer was built for; none before that."""
    return list(getattr(optimizer, "_trainable_variables", []))


def averaged_variables(
    optimizer: keras.optimizers.Optimizer,
) -> list[tuple[keras.Variable, keras.Variable]]:
    """Each trained variable with its moving average, where optimizers keep averages."""
    return [
        pair
        for one in flatten_optimizers(optimizer)
        if getattr(one, "use_ema", False)
        for pair in zip(
            trained_variables(one),
            getattr(one, "_model_variables_moving_average", []),
            strict=False,  # none before the optimizer is built
        )
    ]
