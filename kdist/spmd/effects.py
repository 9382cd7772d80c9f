"""Effects of operations: which types are pure, draw random numbers, or act outside of the program.

TensorFlow calls an operation stateful for many reasons. The sets below say for each type what that
means for a divided step; a type in none of them acts outside of the program, and runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .functions import called_graphs

# Operations that only read a state.
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
# Draws from generators that a process has once: they run once, and all replicas get the result. A
# draw may be left out where no operation needs its result.
PROCESS_DRAWS = {
    "AllCandidateSampler",
    "FixedUnigramCandidateSampler",
    "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler",
    "Multinomial",
    "NonDeterministicInts",
    "ParameterizedTruncatedNormal",
    "RandomCrop",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "SampleDistortedBoundingBox",
    "SampleDistortedBoundingBoxV2",
    "ThreadUnsafeUnigramCandidateSampler",
    "TruncatedNormal",
    "UniformCandidateSampler",
}
# Operations with no state, which may be left out, too.
QUIET = {"Placeholder", *PROCESS_DRAWS}
# Draws of the numbers that a seed says.
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
# Draws for which XLA has other numbers than TensorFlow.
DRAWN_BY_XLA = {*DRAWS, "StatelessMultinomial"}
# Operations that every replica may run on its own: their results follow from their inputs, or they
# only fail. cuDNN's, stateful for their workspace, draw a dropout of their own if they have one.
PURE = {
    "Assert",
    "CheckNumerics",
    "CheckNumericsV2",
    "CudnnRNN",
    "CudnnRNNBackprop",
    "CudnnRNNBackpropV2",
    "CudnnRNNBackpropV3",
    "CudnnRNNV2",
    "CudnnRNNV3",
    "DeepCopy",
    "DeviceIndex",
    "EmptyTensorList",
    "GuaranteeConst",
    "IsTensorFloat32Enabled",
    "NoOp",
    "Placeholder",
    "StatelessRandomGetAlg",
    "StatelessRandomGetKeyCounter",
    "XlaDequantize",
}
CALLS = {"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "While"}
_BEFORE_ARGUMENTS = {"Case": 1, "If": 1}  # inputs that are no arguments of the functions


def effects_of(op: Any, shared: Sequence[bool]) -> tuple[bool, set[int]]:
    """Return whether an operation must run once, and which of its inputs are states it changes.

    Args:
        op: The operation.
        shared: For each input, whether it is a state that exists once.
    """
    if not op.op_def.is_stateful or op.type in READS or (op.type in PURE and not _drops(op)):
        return False, set()
    if op.type not in CALLS:
        resources = {i for i, t in enumerate(op.inputs) if t.dtype.name == "resource"}
        return not resources or any(shared[i] for i in resources), resources
    once, changed = False, set()
    for graph in called_graphs(op):
        offset = _BEFORE_ARGUMENTS.get(op.type, 0)
        place = {id(t): offset + i for i, t in enumerate(graph.inputs)}
        for inner in graph.get_operations():
            if not inner.op_def.is_stateful:
                continue
            places = [place.get(id(handle_source(t)), -1) for t in inner.inputs]
            inner_once, inner_changed = effects_of(inner, [p >= 0 and shared[p] for p in places])
            once |= inner_once
            changed |= {places[i] for i in inner_changed if places[i] >= 0}
    return once, changed


def _drops(op: Any) -> bool:
    """Whether one of cuDNN's operations draws a dropout, from a generator of its own."""
    return bool(op.type.startswith("CudnnRNN") and op.get_attr("dropout") > 0)


def handle_source(tensor: Any) -> Any:
    """Return the tensor that a handle is passed on from."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor
