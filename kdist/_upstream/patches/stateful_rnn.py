"""Recurrent layers that keep their states from batch to batch, over several replicas."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..active_batch import active_batch
from ..patching import Patch


class _OwnRows:
    """Stands for a state: takes the rows of this replica in."""

    def assign(self, rows: Any) -> None:
        self.rows = rows


def _call(
    original: Callable[..., Any],
    layer: Any,
    sequences: Any,
    initial_state: Any = None,
    mask: Any = None,
    training: bool = False,
) -> Any:
    """The states have a row for each sample of the global batch; a replica continues its own."""
    batch = active_batch()
    if batch is None or not layer.stateful:
        return original(layer, sequences, initial_state, mask, training)
    states = layer.states
    if initial_state is None:
        initial_state = keras.tree.map_structure(
            lambda state: tf.convert_to_tensor(state)[batch.first_row :][: batch.rows], states
        )
    own = keras.tree.map_structure(lambda _: _OwnRows(), states)
    vars(layer)["states"] = own  # not by `setattr`, which tracks variables
    try:
        sequences = _of_any_size(sequences)
        outputs = original(layer, sequences, initial_state, mask, training)
    finally:
        vars(layer)["states"] = states
    for state, kept in zip(keras.tree.flatten(states), keras.tree.flatten(own), strict=True):
        state.assign(batch.all_gather(tf.stop_gradient(kept.rows)))
    return outputs


def _of_any_size(rows: Any) -> Any:
    """The layer was built for the rows of all replicas, and refuses others that it knows of."""
    if tf.executing_eagerly():
        return rows
    return tf.compat.v1.placeholder_with_default(rows, [None, *rows.shape[1:]])


PATCHES = (
    Patch(
        owner=keras.layers.RNN,
        name="call",
        replacement=_call,
        why="A stateful layer has a state for each row of the global batch, which do not fit the"
        " rows of one replica.",
        canary="test_a_stateful_layer_crashes",
    ),
)
