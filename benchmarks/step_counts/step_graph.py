"""The graph that a step ran: operations of all devices, their shapes and runs, and GPU memory.

A machine without GPUs runs the step on logical CPUs. The kernels that TensorFlow registers for GPUs
say for each of their arguments whether it is in the host's memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import kernels, op_def_registry

# Operations that neither compute nor copy: results are inputs, or known without their values.
_RENAMES = {"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient"}
_TELLS = {"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "EnsureShape", "Assert"}
_READS = {"Const", "_Arg", "_Retval", "Placeholder", "VarHandleOp", "ReadVariableOp", "NoOp"}
_CHOOSES = {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"}
_FREE = _RENAMES | _TELLS | _READS | _CHOOSES
_FLOW = ("Enter", "Merge", "NextIteration", "Exit")
_HOST_TYPES = frozenset(t.as_datatype_enum for t in (tf.string, tf.resource, tf.variant))
_ON_HOST = (tf.int32.as_datatype_enum, *_HOST_TYPES)  # types of arguments of a step on the host


class Source(NamedTuple):
    """A tensor: the place of an operation's result."""

    node: str
    port: int


@dataclass(frozen=True)
class Node:
    """An operation of the graph.

    Attributes:
        name: Name of the operation, with its device.
        op: Type of the operation.
        device: Number of the device.
        inputs: Input tensors, also of other devices.
        controls: Names of operations that come before.
        attributes: Attributes by name.
        inputs_on_host: For each input, whether a GPU's kernel reads it in the host's memory.
        outputs_on_host: For each result, whether a GPU's kernel writes it to the host's memory.
        runs: The number of runs in the step.
    """

    name: str
    op: str
    device: int
    inputs: tuple[Source, ...]
    controls: tuple[str, ...]
    attributes: Mapping[str, Any]
    inputs_on_host: Sequence[bool]
    outputs_on_host: Sequence[bool]
    runs: int

    @property
    def is_collective(self) -> bool:
        """Whether the operation exchanges values with all other devices."""
        return self.op.startswith("Collective")

    @property
    def is_free(self) -> bool:
        """Whether the operation only renames a tensor, reads its shape, or chooses a branch."""
        return self.op in _FREE

    @property
    def is_launch(self) -> bool:
        """Whether a GPU computes: an operation with a result in its memory, or an assignment."""
        if self.is_free or self.is_collective:
            return False
        return self.op.startswith("Assign") or not all(self.outputs_on_host)


class StepGraph:
    """The operations of a step on all devices.

    Args:
        partitions: TensorFlow's graph of each device, after its optimizer.
        runs: The number of runs of each operation, by TensorFlow's profiler.
        rows: Rows of a batch on each device, for batches of unknown size.

    Attributes:
        nodes: Operations by name.
        tensors: Shape and type of each tensor, inferred from variables and batches.
    """

    def __init__(
        self, partitions: Sequence[Any], runs: Mapping[tuple[str, str], int], rows: int
    ) -> None:
        partitions = sorted(partitions, key=_device_name)
        sent = {
            node.attr["tensor_name"].s: _parse_source(node.input[0], place)
            for place, graph in enumerate(partitions)
            for node in graph.node
            if node.op in ("_Send", "_HostSend")
        }
        copies = {
            _make_name(node.name, place): sent[node.attr["tensor_name"].s]
            for place, graph in enumerate(partitions)
            for node in graph.node
            if node.op in ("_Recv", "_HostRecv")
        }
        seen = {op for _, op in runs}
        self.nodes: dict[str, Node] = {}
        for place, graph in enumerate(partitions):
            for proto in graph.node:
                if proto.op not in ("_Send", "_HostSend", "_Recv", "_HostRecv"):
                    count = runs.get((proto.name, proto.op), 0 if proto.op in seen else 1)
                    node = _make_node(proto, place, copies, count)
                    self.nodes[node.name] = node
        self.tensors = self._infer_tensors(partitions, rows)

    def nodes_on(self, device: int) -> Iterator[Node]:
        """Yield the operations of a device that ran."""
        return (node for node in self.nodes.values() if node.device == device and node.runs)

    def shape(self, source: Source) -> list[int]:
        """Return the shape of a tensor; if it is not fully known, the shape of a scalar."""
        shape = self.tensors[source].shape
        return shape.as_list() if shape.is_fully_defined() else []

    def _infer_tensors(self, partitions: Sequence[Any], rows: int) -> dict[Source, tf.TensorSpec]:
        graph = graph_pb2.GraphDef(versions=partitions[0].versions)
        functions = {f.signature.name: f for part in partitions for f in part.library.function}
        graph.library.function.extend(functions.values())
        for node in self.nodes.values():
            _add_node(graph, node, self.nodes, rows)
        with tf.Graph().as_default() as imported:
            tf.graph_util.import_graph_def(graph, name="")
        return {
            Source(op.name, port): tf.TensorSpec(output.shape, output.dtype)
            for op in imported.get_operations()
            for port, output in enumerate(op.outputs)
        }


def _device_name(graph: Any) -> str:
    return next((node.device for node in graph.node if node.device), "")


def _make_name(name: str, place: int) -> str:
    return f"device{place}/{name}"


def _parse_source(text: str, place: int) -> Source:
    name, _, port = text.partition(":")
    return Source(_make_name(name, place), int(port or 0))


def _make_node(proto: Any, place: int, copies: Mapping[str, Source], runs: int) -> Node:
    inputs, controls = [], []
    for text in proto.input:
        source = _parse_source(text.removeprefix("^"), place)
        source = copies.get(source.node, source)
        if text.startswith("^"):
            controls.append(source.node)
        else:
            inputs.append(source)
    attributes = dict(proto.attr)
    on_host = _find_memory(proto.op, attributes, computes_sizes="/on_host" in proto.name)
    name = _make_name(proto.name, place)
    return Node(name, proto.op, place, tuple(inputs), tuple(controls), attributes, *on_host, runs)


# GPU kernels


@functools.cache
def gpu_kernels(op: str) -> list[Any]:
    """Return the kernels that TensorFlow registers for GPUs, for a type of operations."""
    registered = kernels.get_registered_kernels_for_op(op).kernel
    return [kernel for kernel in registered if kernel.device_type in ("GPU", "DEFAULT")]


def _find_memory(
    op: str, attributes: Mapping[str, Any], *, computes_sizes: bool
) -> tuple[list[bool], list[bool]]:
    """Return, for each input and result of an operation, whether it is in the host's memory.

    kdist computes sizes there (`Stage.on_host`).
    """
    if op == "_Arg":
        return [], [attributes["T"].type in _ON_HOST]
    definition = op_def_registry.get(op)
    matching = [
        kernel
        for kernel in gpu_kernels(op)
        if all(
            _find_type(attributes, definition, constraint.name)
            in constraint.allowed_values.list.type
            for constraint in kernel.constraint
            if constraint.allowed_values.list.type
        )
    ]
    if computes_sizes:
        matching = []
    # TensorFlow prefers a kernel for GPUs to one for any device.
    kernel = max(
        matching, key=lambda kernel: (kernel.device_type == "GPU", kernel.priority), default=None
    )

    def on_host(arguments: Sequence[Any]) -> list[bool]:
        return [
            kernel is None or name in kernel.host_memory_arg or dtype in _HOST_TYPES
            for argument in arguments
            for name, dtype in _list_tensors(argument, attributes, definition)
        ]

    return on_host(definition.input_arg), on_host(definition.output_arg)


def _find_type(attributes: Mapping[str, Any], definition: Any, name: str) -> int:
    if name in attributes:
        return int(attributes[name].type)
    return next(
        int(attribute.default_value.type) for attribute in definition.attr if attribute.name == name
    )


def _list_tensors(
    argument: Any, attributes: Mapping[str, Any], definition: Any
) -> Iterator[tuple[str, int]]:
    if argument.type_list_attr:
        for dtype in attributes[argument.type_list_attr].list.type:
            yield argument.name, dtype
        return
    count = attributes[argument.number_attr].i if argument.number_attr else 1
    by_name = argument.type_attr
    dtype = _find_type(attributes, definition, by_name) if by_name else argument.type
    for _ in range(count):
        yield argument.name, dtype


# Shapes


def _add_node(graph: Any, node: Node, nodes: Mapping[str, Node], rows: int) -> None:
    """Add an operation to a graph with the shapes of the step."""
    proto = graph.node.add(name=node.name, op=node.op)
    for name, value in node.attributes.items():
        if not name.startswith("_"):
            proto.attr[name].CopyFrom(value)
    if node.op in ("IteratorGetNext", "IteratorGetNextAsOptional", "OptionalGetValue"):
        for shape in proto.attr["output_shapes"].list.shape:
            for dimension in shape.dim:
                if dimension.size == -1:
                    dimension.size = rows
    if node.op in ("ReadVariableOp", "VariableShape"):
        variable = _find_variable(node.inputs[0].node, nodes)
        if "_handle_shapes" in variable.attributes:
            _make_known(proto, variable.attributes["_handle_shapes"].list.shape[0])
            return
    inputs = node.inputs
    if node.op in _FLOW:
        # The shape before a loop, or of a condition's first branch, has the batch.
        inputs = inputs[:1]
        proto.op = "Identity"
        dtype = proto.attr["T"]
        proto.attr.clear()
        proto.attr["T"].CopyFrom(dtype)
    proto.input.extend(f"{source.node}:{source.port}" for source in inputs)
    proto.input.extend(f"^{name}" for name in node.controls)


def _find_variable(name: str, nodes: Mapping[str, Node]) -> Node:
    node = nodes[name]
    passes_on = node.op in ("Identity", "Switch", *_FLOW)
    return _find_variable(node.inputs[0].node, nodes) if passes_on else node


def _make_known(proto: Any, shape: Any) -> None:
    """Give an operation that reads a variable, or its shape, the known shape."""
    if proto.op == "ReadVariableOp":
        proto.op = "Placeholder"
        proto.attr["shape"].shape.CopyFrom(shape)
        return
    proto.op = "Const"
    dtype = tf.as_dtype(proto.attr.pop("out_type").type)
    value = tf.make_tensor_proto([dimension.size for dimension in shape.dim], dtype)
    proto.attr["dtype"].type = dtype.as_datatype_enum
    proto.attr["value"].tensor.CopyFrom(value)
