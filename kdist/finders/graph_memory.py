"""`peak_bytes`: the most memory that a graph needs at a time, without running it."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .. import _upstream

# Operations whose output is their first input: nothing is copied.
_ALIASES = {
    *("Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient"),
    *("PreventGradient", "CheckNumerics", "EnsureShape", "Snapshot", "Enter", "Exit"),
}
# Operations that write into an input which nobody needs afterwards (TensorFlow's
# `forward_input_or_allocate_output`).
_IN_PLACE = {
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Maximum", "Minimum", "AddN"),
    *("Neg", "Square", "Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Tanh", "Sigmoid", "Relu", "Relu6"),
    *("ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "TanhGrad", "SigmoidGrad", "BiasAdd"),
    *("Elu", "Selu", "LeakyRelu", "LeakyReluGrad", "Softplus", "SoftplusGrad", "Softmax", "Erf"),
    *("SquaredDifference", "SelectV2", "Pow", "Abs", "Sign", "RsqrtGrad", "SqrtGrad"),
}
# Its last output is scratch memory for its gradient: cuDNN's, empty on the CPU.
_RESERVES = "FusedBatchNormV3"
# What they need inside depends on what they read.
_LOOPS = ("While", "StatelessWhile", "Case", "StatelessCase")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakBytes:
    """The memory of a graph.

    Attributes:
        peak: Bytes of all tensors that are needed at the same time, at most.
        unknown: Operations whose memory is not counted: their shape is not known before they run,
            or they are loops.
    """

    peak: int
    unknown: int


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation: which tensors it reads, and which it makes.

    Attributes:
        kind: The operation's type.
        inputs: Names of tensors.
        outputs: Bytes of tensors by their name; `None` where unknown.
        within: Bytes that it needs besides, at most: those of the graph that it calls.
        unknown: Operations there whose memory is not counted.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: Mapping[str, int | None]
    within: int = 0
    unknown: int = 0


def steps_of(graph: Any) -> list[Step]:
    """Return the operations of a `tf.Graph`, in the order in which they were made."""
    return [_step(operation) for operation in graph.get_operations()]


def _step(operation: Any) -> Step:
    called = [_called(graph) for graph in _upstream.inner_graphs(operation)]
    return Step(
        operation.type,
        tuple(tensor.name for tensor in operation.inputs),
        {tensor.name: _size(operation.type, tensor) for tensor in operation.outputs}
        or {name_of_result(operation): 0},
        within=max((one.peak for one in called), default=0),
        unknown=sum(one.unknown for one in called),
    )


def _called(graph: Any) -> PeakBytes:
    """What a graph that is called needs besides what it is given and what it returns."""
    does = [name_of_result(operation) for operation in graph.control_outputs]
    # Its caller has the inputs until it is done.
    ends = {tensor.name: tensor for tensor in (*graph.inputs, *graph.outputs)}
    found = peak_bytes(steps_of(graph), [*ends, *does])
    outside = sum(_size(tensor.op.type, tensor) or 0 for tensor in ends.values())
    return PeakBytes(peak=max(found.peak - outside, 0), unknown=found.unknown)


def name_of_result(operation: Any) -> str:
    """Return the name of an operation's first tensor, or its own if it only does something."""
    return str(operation.outputs[0].name if operation.outputs else operation.name)


def _size(kind: str, tensor: Any) -> int | None:
    if kind == "Placeholder" and tensor.dtype.name == "resource":
        return 0
    if tensor.dtype.name in ("resource", "variant", "string"):
        return 0
    if not tensor.shape.is_fully_defined():
        return 0 if kind == _RESERVES else None
    return int(math.prod(tensor.shape.as_list())) * int(tensor.dtype.size)


def peak_bytes(steps: Iterable[Step], results: Collection[str]) -> PeakBytes:
    """Walk through the operations in order, and free each tensor after it was last read.

    The order is that in which the operations were made: the forward pass, then the backward pass.
    A GPU runs them so. Operations that can write into their input do, and those that no result
    depends on do not run. Scratch memory within an operation, such as a convolution's, is not
    counted.

    Args:
        steps: The operations.
        results: Names of tensors that are kept to the end.

    Example:
        >>> square = Step("Square", ("x:0",), {"y:0": 400})
        >>> peak_bytes([Step("Placeholder", (), {"x:0": 400}), square], ["y:0"]).peak
        400
    """
    walk = _needed(list(steps), results)
    owner: dict[str, str] = {}  # the tensor whose memory a tensor is in
    last: dict[str, int] = {}
    for place, step in enumerate(walk):
        for name in step.outputs:
            owner[name] = name
        if step.kind in _ALIASES:
            for name, source in zip(step.outputs, step.inputs, strict=False):
                owner[name] = owner.get(source, source)
        for name in (*step.inputs, *step.outputs):
            last[owner.get(name, name)] = place
    for name in results:
        last[owner.get(name, name)] = len(walk)
    return _simulate(walk, owner, last)


def _needed(steps: list[Step], results: Iterable[str]) -> list[Step]:
    """The operations that a result depends on."""
    maker = {name: step for step in steps for name in step.outputs}
    needed: set[int] = set()
    names = list(results)
    while names:
        step = maker.get(names.pop())
        if step is not None and id(step) not in needed:
            needed.add(id(step))
            names += step.inputs
    return [step for step in steps if id(step) in needed]


def _simulate(walk: list[Step], owner: dict[str, str], last: dict[str, int]) -> PeakBytes:
    held: dict[str, int] = {}
    now = peak = unknown = 0
    ends: dict[int, list[str]] = {}
    for name, place in last.items():
        ends.setdefault(place, []).append(name)
    for place, step in enumerate(walk):
        unknown += step.unknown + (step.kind in _LOOPS)
        for name, size in step.outputs.items():
            if size is None:
                unknown += step.kind not in _LOOPS
            elif owner[name] == name and step.kind != "ReadVariableOp":
                taken = _taken(step, size, place, held, owner, last)
                if taken is not None:
                    held[name] = held.pop(taken)
                else:
                    held[name] = size
                    now += size
        peak = max(peak, now + step.within)
        for name in ends.get(place, ()):
            now -= held.pop(name, 0)
    return PeakBytes(peak=peak, unknown=unknown)


def _taken(
    step: Step,
    size: int,
    place: int,
    held: Mapping[str, int],
    owner: Mapping[str, str],
    last: Mapping[str, int],
) -> str | None:
    """The input whose memory the output takes; `None` if it needs its own."""
    if step.kind not in _IN_PLACE:
        return None
    inputs = (owner.get(name, name) for name in step.inputs)
    free = (name for name in inputs if last[name] == place and held.get(name) == size)
    return next(free, None)
