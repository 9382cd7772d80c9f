"""What Keras computes for replicas: numbers of their variables, and kernels of ours."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.common.variables import Variable
from keras.src.backend.tensorflow import nn as keras_nn
from keras.src.backend.tensorflow import random as keras_random

from .hooks import StrategyHooks, hooks_of_copies, replica_hooks
from .patching import Patch
from .steps import traced_strategy


def _to_number(original: Callable[..., Any], variable: Any) -> Any:
    """Read the first replica's copy: all are equal."""
    if variable.ndim == 0 and hooks_of_copies(variable) is not None:
        return variable.value.numpy().item()
    return original(variable)


_NUMBERS = (
    Patch(
        owner=Variable,
        name="__float__",
        replacement=lambda original, variable: float(_to_number(original, variable)),
        why="Raises a TypeError for a variable with a copy on every replica, for example in"
        " `float(optimizer.learning_rate)`.",
        test="test_a_scalar_variable_is_no_number",
    ),
    Patch(
        owner=Variable,
        name="__int__",
        replacement=lambda original, variable: int(_to_number(original, variable)),
        why="The same, for example in `int(optimizer.iterations)`.",
        test="test_a_scalar_variable_is_no_number",
    ),
)


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


_DROPOUT = (
    Patch(
        owner=keras_random,
        name="dropout",
        replacement=_dropout,
        why="On CPUs, draws sequentially, and stores the random numbers for the gradient.",
        test="test_dropout_keeps_its_random_numbers",
    ),
)


def _activation(original: Callable[..., Any], x: Any, *arguments: Any, **options: Any) -> Any:
    """Use the strategy's kernel in a step, if it supports the inputs."""
    hooks = (
        traced_strategy() or replica_hooks()
    )  # a model that is exported or called outside a step stays as it is
    fused = None if hooks is None else hooks.fused_activation(original, x, *arguments, **options)
    return original(x, *arguments, **options) if fused is None else fused


_ACTIVATIONS = tuple(
    Patch(
        owner=keras_nn,
        name=name,
        replacement=_activation,
        why="Reads and writes all values once per operation of the activation and of its gradient.",
        test="test_an_activation_is_several_operations",
    )
    for name in ("gelu", "silu", "hard_silu")
)

PATCHES = (*_NUMBERS, *_DROPOUT, *_ACTIVATIONS)
