"""Patch stateful recurrent layers for several replicas."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..active_batch import active_batch
from ..patching import Patch


class _LocalState:
    """Replaces a state variable, and receives the rows of this replica."""

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
    """Use this replica's rows of the states, which have a row per sample of the global batch."""
    batch = active_batch()
    if batch is None or not layer.stateful:
        return original(layer, sequences, initial_state, mask, training)
    states = layer.states
    if initial_state is None:
        initial_state = keras.tree.map_structure(
            lambda state: _erase_batch_size(
                tf.convert_to_tensor(state)[batch.first_row :][: batch.rows]
            ),
            states,
        )
    local = keras.tree.map_structure(lambda _: _LocalState(), states)
    vars(layer)["states"] = local  # not `setattr`, which would track it
    try:
        sequences = _erase_batch_size(sequences)
        outputs = original(layer, sequences, initial_state, mask, training)
    finally:
        vars(layer)["states"] = states
    for state, new in zip(keras.tree.flatten(states), keras.tree.flatten(local), strict=True):
        state.assign(batch.all_gather(tf.stop_gradient(new.rows)))
    return outputs


def _erase_batch_size(rows: Any) -> Any:
    """Make the batch size unknown: the layer was built for the global batch, and checks it.

    That of the sequences and of the states alike, as the loop over the steps compares them.
    """
    if tf.executing_eagerly():
        return rows
    return tf.compat.v1.placeholder_with_default(rows, [None, *rows.shape[1:]])


PATCHES = (
    Patch(
        owner=keras.layers.RNN,
        name="call",
        replacement=_call,
        why="A stateful layer has a state per row of the global batch, which does not fit the rows"
        " of a replica.",
        canary="test_a_stateful_layer_crashes",
    ),
)
