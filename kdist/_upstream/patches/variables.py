"""Patch variables: what a step writes to them is equal on all replicas, scalars become numbers."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.common.variables import Variable
from tensorflow.python.distribute import values

from ..active_batch import active_batch
from ..hooks import hooks_of_copies
from ..patching import TENSORFLOW, Patch
from .metrics import is_updating_metric


def _write(
    original: Callable[..., Any], variable: Any, update: Any, value: Any, **options: Any
) -> Any:
    """Write the same value on every replica if it is a sum or a mean over the samples."""
    batch = active_batch()
    if (
        batch is not None
        and variable.aggregation == tf.VariableAggregation.NONE
        and isinstance(value, tf.Tensor)
        and not tf.executing_eagerly()
        and not is_updating_metric()
    ):
        in_layer = global_state.get_global_attribute("current_call_ctx") is not None
        value = batch.writes.synchronize_write(value, variable, in_layer=in_layer)
    return original(variable, update, value, **options)


def _to_number(original: Callable[..., Any], variable: Any) -> Any:
    """Read the first replica's copy: all are equal."""
    if variable.ndim == 0 and hooks_of_copies(variable) is not None:
        return variable.value.numpy().item()
    return original(variable)


PATCHES = (
    Patch(
        owner=values,
        name="_on_write_update_replica",
        replacement=_write,
        why="Writes what each replica computed from its own samples into a layer's state: the"
        " copies differ, and only the first is saved.",
        canary="test_replicas_write_different_layer_states",
        seen_in=TENSORFLOW,
    ),
)

NUMBERS = (
    Patch(
        owner=Variable,
        name="__float__",
        replacement=lambda original, variable: float(_to_number(original, variable)),
        why="Raises a TypeError for a variable with a copy on every replica, for example in"
        " `float(optimizer.learning_rate)`.",
        canary="test_a_scalar_variable_is_no_number",
    ),
    Patch(
        owner=Variable,
        name="__int__",
        replacement=lambda original, variable: int(_to_number(original, variable)),
        why="The same, for example in `int(optimizer.iterations)`.",
        canary="test_a_scalar_variable_is_no_number",
    ),
)
