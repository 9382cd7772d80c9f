"""Which operations act on a state that exists once: they run once, not on every replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .functions import called_graphs

# Operations that TensorFlow calls stateful, but that only read a state.
READS = {
    "LookupTableExportV2",
    "LookupTableFindV2",
    "LookupTableSizeV2",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "VarIsInitializedOp",
    "VariableShape",
}
# Those without a state of the program's, which may be left out where nothing needs their results.
QUIET = {
    "Placeholder",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
}
# Those that draw, as often as they are told.
DRAWS = {
    "StatelessRandomNormal",
    "StatelessRandomNormalV2",
    "StatelessRandomUniform",
    "StatelessRandomUniformFullInt",
    "StatelessRandomUniformFullIntV2",
    "StatelessRandomUniformInt",
    "StatelessRandomUniformIntV2",
    "StatelessRandomUniformV2",
    "StatelessTruncatedNormal",
    "StatelessTruncatedNormalV2",
}
# Those that XLA draws otherwise.
DRAWN_BY_XLA = {*DRAWS, "StatelessMultinomial"}
# Those that have no state, or one that every replica may have.
_HARMLESS = {
    "Assert",
    "CheckNumerics",
    "CheckNumericsV2",
    "DeviceIndex",
    "EmptyTensorList",
    "NoOp",
    "Placeholder",
    "StatelessRandomGetAlg",
    "StatelessRandomGetKeyCounter",
}
_CALLS = {"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "While"}
_BEFORE_ARGUMENTS = {"Case": 1, "If": 1}  # inputs that are no arguments of the functions


def effects_of(op: Any, shared: Sequence[bool]) -> tuple[bool, set[int]]:
    """Return whether an operation must run once, and which of its inputs are states it changes.

    Args:
        op: The operation.
        shared: For each input, whether it is a state that exists once.
    """
    if not op.op_def.is_stateful or op.type in _HARMLESS or op.type in READS:
        return False, set()
    once, changed = False, set()
    called = called_graphs(op) if op.type in _CALLS else []
    for graph in called:
        offset = _BEFORE_ARGUMENTS.get(op.type, 0)
        place = {id(t): offset + i for i, t in enumerate(graph.inputs)}
        for inner in graph.get_operations():
            if not inner.op_def.is_stateful:
                continue
            places = [place.get(id(_source(t)), -1) for t in inner.inputs]
            inner_once, inner_changed = effects_of(inner, [p >= 0 and shared[p] for p in places])
            once |= inner_once
            changed |= {places[i] for i in inner_changed if places[i] >= 0}
    if called:
        return once, changed
    resources = {i for i, t in enumerate(op.inputs) if t.dtype.name == "resource"}
    return not resources or any(shared[i] for i in resources), resources


def _source(tensor: Any) -> Any:
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
