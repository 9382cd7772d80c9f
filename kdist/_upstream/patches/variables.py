"""What a step writes into variables, of which every replica has a copy of its own."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python.distribute import values

from ..active_batch import active_batch
from ..patching import TENSORFLOW, Patch
from .metrics import is_updating_metric


def _write(
    original: Callable[..., Any], variable: Any, update: Any, value: Any, **options: Any
) -> Any:
    """Writes the same on every replica: a sum or a mean over the samples is the global batch's."""
    batch = active_batch()
    if (
        batch is not None
        and variable.aggregation == tf.VariableAggregation.NONE
        and isinstance(value, tf.Tensor)
        and not tf.executing_eagerly()
        and not is_updating_metric()
    ):
        in_layer = global_state.get_global_attribute("current_call_ctx") is not None
        value = batch.writes.to_be_written(value, variable, in_layer=in_layer)
    return original(variable, update, value, **options)


PATCHES = (
    Patch(
        owner=values,
        name="_on_write_update_replica",
        replacement=_write,
        why="Writes into a layer's state what each replica computed from its own samples, so that"
        " the copies differ and a file holds the first.",
        canary="test_replicas_write_their_own_into_a_layers_state",
        seen_in=TENSORFLOW,
    ),
)
