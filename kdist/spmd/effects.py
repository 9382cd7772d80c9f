"""Whether an operation must run once, and the variables that it changes."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from .functions import called_graphs
from .op_types import CALLS, CONDITIONS, PURE, READS


def effects_of(op: tf.Operation, shared: Sequence[bool]) -> tuple[bool, set[int]]:
    """Return whether an operation must run once, and the indices of the states it changes.

    `shared` says for each input whether it is a state that exists once, not on every replica.
    """
    if (
        not op.op_def.is_stateful
        or op.type in READS
        or (op.type in PURE and not _draws_dropout(op))
    ):
        return False, set()
    if op.type not in CALLS:
        resources = {i for i, t in enumerate(op.inputs) if t.dtype == tf.resource}
        return not resources or any(shared[i] for i in resources), resources
    once, changed = False, set()
    for graph in called_graphs(op):
        # A condition has its predicate before the arguments of its functions.
        position_of = {
            t.ref(): position for position, t in enumerate(graph.inputs, op.type in CONDITIONS)
        }
        for inner in graph.get_operations():
            if not inner.op_def.is_stateful:
                continue
            indices = [position_of.get(handle_source(t).ref(), -1) for t in inner.inputs]
            inner_once, inner_changed = effects_of(
                inner, [position >= 0 and shared[position] for position in indices]
            )
            once |= inner_once
            changed |= {indices[position] for position in inner_changed if indices[position] >= 0}
    return once, changed


def _draws_dropout(op: tf.Operation) -> bool:
    """Whether an operation of cuDNN drops out values, which cuDNN's own generator draws."""
    return bool(op.type.startswith("CudnnRNN") and op.get_attr("dropout") > 0)


def handle_source(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor at the beginning of a chain of `Identity` operations of a handle."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
