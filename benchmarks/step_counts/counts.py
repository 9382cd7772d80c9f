"""Counts of the work of several GPUs in a step, from its graph."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tensorflow as tf

from .step_graph import Node, Source, StepGraph

LARGE = 1024
"""Fewest elements of an activation whose passes are counted."""

# Microseconds, by which the longest path is chosen.
_LAUNCH, _COPY, _COLLECTIVE = 7.0, 80.0, 110.0
_SUMS, _GATHERS = ("CollectiveReduceV2",), ("CollectiveGatherV2",)
_RENAMING = ("Identity", "Reshape", "ExpandDims", "Squeeze", "Switch")
_ADDS, _JOINS = ("AddV2", "AddN", "AccumulateNV2"), ("Pack", "ConcatV2")


@dataclass(frozen=True)
class Exchanges:
    """The exchanges of a kind in a step.

    Attributes:
        packs: The number of packed tensors of each exchange.
        bytes: Bytes that a device sends in all exchanges.
    """

    packs: list[int] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True)
class StepCounts:
    """The work of a step on the first device; `operations` counts all devices.

    Attributes:
        operations: Operations that run, without renames of tensors and reads of shapes.
        launches: Operations that a GPU computes: with a result in its memory, or assignments.
        collective_sums: Sums by TensorFlow's collectives, which are NCCL's on GPUs.
        device_sums: Sums of tensors that are copied to the first device and added there.
        collective_gathers: Tensors that are gathered by collectives.
        device_gathers: Tensors that are copied to the first device and put together there.
        copies_to_gpu: Tensors in the host's memory that a kernel reads in the GPU's memory.
        copies_to_host: Tensors in the GPU's memory that a kernel reads in the host's memory.
        copies_between: Tensors that are copied from one device to another.
        exchanges_on_path: Collectives and copies between devices on the longest path of the step.
        launches_on_path: Launches on that path.
        launches_between: Median of the launches on that path between two exchanges of the forward
            pass.
        passes: The number of reads and writes of activations by launches. An activation has at
            least `LARGE` elements and an axis of the samples, or of parts of each sample.
    """

    operations: int
    launches: int
    collective_sums: Exchanges
    device_sums: Exchanges
    collective_gathers: Exchanges
    device_gathers: Exchanges
    copies_to_gpu: int
    copies_to_host: int
    copies_between: int
    exchanges_on_path: int
    launches_on_path: int
    launches_between: float
    passes: int


def count_work(graph: StepGraph, rows: int) -> StepCounts:
    """Count the work of a step.

    Args:
        graph: The graph of the step.
        rows: The number of samples on each device; no size of a weight is a multiple of it.
    """
    to_gpu, to_host = _count_host_copies(graph)
    path = find_longest_path(graph)
    return StepCounts(
        operations=sum(node.runs for node in graph.nodes.values() if not node.is_free),
        launches=sum(node.runs for node in graph.nodes_on(0) if node.is_launch),
        collective_sums=_count_collectives(graph, _SUMS),
        device_sums=_count_on_first_device(graph, _ADDS),
        collective_gathers=_count_collectives(graph, _GATHERS),
        device_gathers=_count_on_first_device(graph, _JOINS),
        copies_to_gpu=to_gpu,
        copies_to_host=to_host,
        copies_between=_count_copies_between(graph),
        exchanges_on_path=sum(step.is_exchange for step in path),
        launches_on_path=sum(step.launches for step in path),
        launches_between=_count_launches_between(path),
        passes=sum(_count_passes(graph, node, rows) for node in graph.nodes_on(0)),
    )


# Exchanges


def _count_collectives(graph: StepGraph, types: Sequence[str]) -> Exchanges:
    tensors = [node.inputs[0] for node in graph.nodes_on(0) if node.op in types]
    return Exchanges(
        [_count_packed(graph, each) for each in tensors],
        sum(_count_bytes(graph, t) for t in tensors),
    )


def _count_on_first_device(graph: StepGraph, types: Sequence[str]) -> Exchanges:
    packs, size = [], 0
    for node in graph.nodes_on(0):
        sources = [_find_origin(graph, source) for source in node.inputs]
        if node.op in types and any(graph.nodes[source.node].device for source in sources):
            packs.append(_count_packed(graph, node.inputs[0]))
            size += _count_bytes(graph, sources[0])
    return Exchanges(packs, size)


def _find_origin(graph: StepGraph, source: Source) -> Source:
    """Return the tensor before operations that only rename it or change its shape."""
    node = graph.nodes[source.node]
    if node.op in _RENAMING:
        return _find_origin(graph, node.inputs[0])
    return source


def _count_packed(graph: StepGraph, source: Source) -> int:
    """Return the number of tensors that are concatenated in a tensor."""
    node = graph.nodes[_find_origin(graph, source).node]
    return int(node.attributes["N"].i) if node.op == "ConcatV2" else 1


def _count_bytes(graph: StepGraph, source: Source) -> int:
    spec = graph.tensors[source]
    if not spec.shape.is_fully_defined():
        raise SystemExit(f"the shape of {source.node} is {spec.shape}, expected one that is known")
    return int(spec.shape.num_elements() * spec.dtype.size)


# Copies


def _count_host_copies(graph: StepGraph) -> tuple[int, int]:
    """Return the numbers of tensors that are copied to the GPU, and to the host."""
    copies: dict[tuple[Source, bool], int] = {}
    for node in graph.nodes_on(0):
        for source, on_host in zip(node.inputs, node.inputs_on_host, strict=True):
            maker = graph.nodes[source.node]
            if maker.device or maker.op == "Const":  # TensorFlow has constants in both memories
                continue
            if maker.outputs_on_host[source.port] != on_host:
                copies[source, on_host] = max(node.runs, copies.get((source, on_host), 0))
    to_host = sum(times for (_, on_host), times in copies.items() if on_host)
    return sum(copies.values()) - to_host, to_host


def _count_copies_between(graph: StepGraph) -> int:
    copies = {
        (source, node.device)
        for node in graph.nodes.values()
        if node.runs
        for source in node.inputs
        if graph.nodes[source.node].device != node.device
    }
    return sum(0 in (graph.nodes[source.node].device, device) for source, device in copies)


# Passes


def _count_passes(graph: StepGraph, node: Node, rows: int) -> int:
    if not node.is_launch:
        return 0
    read = [t for t, host in zip(node.inputs, node.inputs_on_host, strict=True) if not host]
    written = [
        Source(node.name, port) for port, host in enumerate(node.outputs_on_host) if not host
    ]
    return node.runs * sum(_is_activation(graph.shape(t), rows) for t in [*read, *written])


def _is_activation(shape: Sequence[int], rows: int) -> bool:
    return math.prod(shape) >= LARGE and any(size % rows == 0 for size in shape)


# The longest path


class Step(NamedTuple):
    """An operation on the longest path.

    Attributes:
        name: Name of the operation.
        is_exchange: Whether the path goes through a collective, or comes from another device.
        launches: Number of launches of the operation.
    """

    name: str
    is_exchange: bool
    launches: int


def find_longest_path(graph: StepGraph) -> list[Step]:
    """Return the longest path through the step, by the times of launches and exchanges."""
    members = _group_collectives(graph)
    before = {name: list(_list_predecessors(graph, name, members)) for name in graph.nodes}
    best: dict[str, tuple[float, str | None]] = {}
    for name in _sort_topologically(before):
        node = graph.nodes[name]
        cost = _COLLECTIVE if node.is_collective else _LAUNCH * node.is_launch * node.runs
        longest = max(
            (
                (best[earlier_name][0] + _COPY * _is_copy(graph, earlier_name, node), earlier_name)
                for earlier_name in before[name]
                if earlier_name in best
            ),
            default=(0.0, None),
        )
        best[name] = (longest[0] + cost, longest[1])
    path: list[Step] = []
    last: str | None = max(best, key=lambda earlier_name: best[earlier_name][0])
    while last is not None:
        node, earlier = graph.nodes[last], best[last][1]
        is_copy = earlier is not None and _is_copy(graph, earlier, node)
        path.append(Step(last, node.is_collective or is_copy, node.is_launch * node.runs))
        last = earlier
    return path[::-1]


def _is_copy(graph: StepGraph, earlier: str, node: Node) -> bool:
    return graph.nodes[earlier].device != node.device and not node.is_collective


def _group_collectives(graph: StepGraph) -> dict[str, list[str]]:
    """Return the group of each collective: the collectives that exchange values with it.

    The order of the keys is the same on all devices.
    """
    by_key: dict[object, list[str]] = {}
    counts: dict[tuple[int, str], int] = {}
    for node in sorted(_run_collectives(graph), key=lambda node: _find_key_place(graph, node)):
        kind = (node.device, node.op)
        counts[kind] = counts.get(kind, 0) + 1
        by_key.setdefault((node.op, counts[kind]), []).append(node.name)
    return {name: names for names in by_key.values() for name in names}


def _run_collectives(graph: StepGraph) -> Iterator[Node]:
    return (node for node in graph.nodes.values() if node.is_collective and node.runs)


def _find_key_place(graph: StepGraph, node: Node) -> int:
    """Return the key of a collective, or the place of its argument in the step."""
    key = graph.nodes[_find_origin(graph, node.inputs[3]).node]
    if key.op == "Const":
        return int(tf.make_ndarray(key.attributes["value"].tensor))
    return int(key.attributes["index"].i)


def _list_predecessors(graph: StepGraph, name: str, groups: dict[str, list[str]]) -> Iterator[str]:
    """Yield the operations before an operation; a loop's body is once on the path, at its end."""
    for member in groups.get(name, [name]):
        node = graph.nodes[member]
        inputs = [source.node for source in node.inputs]
        if node.op == "Merge":
            inputs = [each for each in inputs if graph.nodes[each].op != "NextIteration"]
        if node.op == "Exit":
            start = graph.nodes[graph.nodes[inputs[0]].inputs[0].node]
            inputs += [source.node for source in start.inputs]
        yield from (*inputs, *node.controls)


def _sort_topologically(before: dict[str, list[str]]) -> Iterator[str]:
    """Yield all names in topological order."""
    entered: set[str] = set()
    for start in before:
        stack = [] if start in entered else [(start, iter(before[start]))]
        entered.add(start)
        while stack:
            for earlier in stack[-1][1]:
                if earlier not in entered:
                    entered.add(earlier)
                    stack.append((earlier, iter(before[earlier])))
                    break
            else:
                yield stack.pop()[0]


def _count_launches_between(path: Sequence[Step]) -> float:
    """Return the median of the launches between exchanges of the forward pass, up to the loss.

    Exchanges in a row count once.
    """
    between, launches, has_exchanged = [], 0, False
    for step in path:
        if "compile_loss" in step.name or "gradient_tape" in step.name:
            break
        if step.is_exchange:
            between += [launches] if has_exchanged and launches else []
            launches, has_exchanged = 0, True
        launches += step.launches
    return float(statistics.median(between)) if between else 0.0
