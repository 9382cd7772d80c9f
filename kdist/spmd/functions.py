"""Functions that the operations of a graph call, their graphs, and copies of operations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.client.pywrap_tf_session import TF_SetOpStackTrace
from tensorflow.python.framework import func_graph as func_graphs
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
from tensorflow.python.util.tf_stack import LoadTracesFromDebugInfo, extract_stack

from .._upstream.add_in_order import add_in_order, keep_order

# Attributes of operations that name functions.
_FUNCTIONS = ("f", "body", "cond", "then_branch", "else_branch", "branches")


def find_function(op: Any, name: str) -> Any:
    """Return a function that an operation calls, from the operation's graph or an outer graph."""
    graph = op.graph
    while (function := graph._get_function(name)) is None:
        graph = graph.outer_graph
    return function


def is_compiled(op: Any) -> bool:
    """Whether XLA has to compile the function that an operation calls."""
    attributes = find_function(op, op.get_attr("f").name).cached_definition.attr
    return "_XlaMustCompile" in attributes and bool(attributes["_XlaMustCompile"].b)


def kernel_name(op: Any) -> str:
    """Return the name of the kernel that an operation calls; empty if the function is no kernel."""
    attributes = find_function(op, op.get_attr("f").name).cached_definition.attr
    return attributes["_implements"].s.decode() if "_implements" in attributes else ""


def called_names(op: Any) -> list[str]:
    """Return the names of the functions that an operation calls."""
    values = [op.node_def.attr[name] for name in _FUNCTIONS if name in op.node_def.attr]
    functions = [function for value in values for function in (value.func, *value.list.func)]
    return [function.name for function in functions if function.name]


def copy_operation(graph: Any, op: Any, inputs: Sequence[Any]) -> Any:
    """Copy an operation into a graph, with new inputs, and with the functions that it calls."""
    called = [op.type] if op.graph._is_function(op.type) else []
    for name in (*called, *called_names(op)):
        if not graph._is_function(name):
            graph._add_function_recursive(find_function(op, name))
    attributes = {
        name: value
        for name, value in op.node_def.attr.items()
        # The types in these attributes follow from the inputs.
        if name not in ("_class", "Tshape", "Tdim", "Tpaddings")
    }
    if {"branches", "then_branch"} & attributes.keys():
        # The gradient of a condition sets the shapes of the first branch (TensorFlow 2.21).
        attributes["output_shapes"] = shapes_attribute([output.shape for output in op.outputs])
    return create_like(graph, op, inputs, [output.dtype for output in op.outputs], attributes)


def is_sum(op: tf.Operation) -> bool:
    """Whether the bits of an operation's result depend on the order of its summands."""
    dtype = op.outputs[0].dtype if op.outputs else tf.variant
    return op.type in ("Add", "AddV2", "AddN") and (dtype.is_floating or dtype.is_complex)


def write_sum(graph: Any, op: tf.Operation, inputs: Sequence[Any]) -> tf.Operation:
    """Write a sum so that it has the same bits on every replica."""
    if op.type == "AddN" and len(inputs) > 2:
        with graph.name_scope(None):
            operation = add_in_order(inputs, op.name).op
        set_traceback(operation, user_traceback(op))
        return operation
    operation = copy_operation(graph, op, inputs)
    keep_order(operation.outputs[0])
    return operation


def shapes_attribute(shapes: Iterable[Any]) -> Any:
    """Return an attribute that lists shapes."""
    protos = [tf.TensorShape(shape).as_proto() for shape in shapes]
    return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(shape=protos))


def create_like(
    graph: Any, op: Any, inputs: Sequence[Any], dtypes: Sequence[Any], attributes: dict[str, Any]
) -> Any:
    """Make an operation with the name and the traceback of another operation."""
    with graph.name_scope(None):
        operation = graph._create_op_internal(
            op.type, list(inputs), list(dtypes), name=op.name, attrs=attributes, op_def=op.op_def
        )
    set_traceback(operation, user_traceback(op))
    hold_back([operation], graph._current_control_dependencies())
    return operation


def hold_back(operations: Sequence[Any], controls: Iterable[Any]) -> None:
    """Let stateful operations wait for `controls`.

    TensorFlow leaves out a control input on which an input already depends. But a branch in the
    place of a condition has only the control inputs of the condition.
    """
    for op in operations:
        if op.op_def.is_stateful and op.type != "Placeholder":
            op._add_control_inputs(list({*controls}.difference(op.control_inputs)))


class TracedGraph(func_graphs.FuncGraph):
    """Graph of a step; keeps the traceback of each operation, for its copies.

    `Operation.traceback` refers to the operation, and copying its frames takes a long time.
    """

    def _create_op_internal(self, *args: Any, **options: Any) -> Any:
        operation = super()._create_op_internal(*args, **options)
        operation._kdist_traceback = extract_stack()
        return operation


def traceback_lines(op: Any) -> list[tuple[str, int]]:
    """Return the files and line numbers of an operation's traceback, the outermost first."""
    return [(frame.filename, frame.lineno) for frame in op.traceback or ()]


def user_traceback(op: Any) -> Any:
    """Return an operation's traceback, for its copies; `None` if TensorFlow has none."""
    kept = getattr(op, "_kdist_traceback", None)
    if kept is not None or op.traceback is None:
        return kept
    # `[:]` is needed: TensorFlow does not print the result of `get_user_frames` itself.
    return op.traceback.get_user_frames()[:]


def set_traceback(op: Any, traceback: Any) -> None:
    """Let error messages of an operation show a traceback, if there is one."""
    if traceback is not None:
        TF_SetOpStackTrace(op._c_op, traceback)


@contextlib.contextmanager
def functions_are_traced() -> Iterator[None]:
    """Let `tf.function` trace functions inside the `with` block, also where it runs eagerly."""
    eagerly = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(eagerly)


def find_traced_graph(function: Any) -> Any:
    """Return the graph that a function was traced as; `None` if the graph has changed since.

    If gradients of gradients need more inputs and results, TensorFlow adds them to the graph and
    makes a new function of the graph. Rewritten operations are written into the graph, too.
    """
    graph = getattr(function, "graph", None)
    if graph is None:
        return None
    definition = function.cached_definition
    signature = definition.signature
    results = [definition.ret[result.name].split(":")[0] for result in signature.output_arg]
    if (len(signature.input_arg), len(results)) != (len(graph.inputs), len(graph.outputs)):
        return None
    if len(graph.get_operations()) != len(graph.inputs) + len(definition.node_def):
        return None
    names = {t.ref(): arg.name for t, arg in zip(graph.inputs, signature.input_arg, strict=True)}
    return graph if results == [names.get(t.ref(), t.op.name) for t in graph.outputs] else None


def _rebuild_graph(op: Any, function: Any, inputs: Sequence[Any] | None = None) -> Any:
    shapes = None
    if inputs is not None:
        shapes = [None if t.dtype.name in ("resource", "variant") else t.shape for t in inputs]
    with op.graph.as_default():  # This graph has the called functions.
        graph = function_def_to_graph(function.cached_definition, input_shapes=shapes)
    debug_info = getattr(function, "graph_debug_info", None)  # `None` for gradient functions.
    if debug_info is not None:
        tracebacks = LoadTracesFromDebugInfo(debug_info)
        for operation in graph.get_operations():
            if operation.name in tracebacks:
                set_traceback(operation, tracebacks[operation.name][:])
    return graph


def called_graphs(op: Any) -> list[Any]:
    """Return the graphs of the functions that an operation calls."""
    functions = [find_function(op, name) for name in called_names(op)]
    return [find_traced_graph(function) or _rebuild_graph(op, function) for function in functions]


class Bodies:
    """The graphs of called functions: each call has its own graph, as the tensors are keys."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[Any, str], Any] = {}
        self._taken: set[int] = set()
        # For a rewritten operation, the operations in its place, and their results.
        self.rewritten: dict[Any, Any] = {}
        # For each operation in place of a rewritten operation, the rewritten operation.
        self.added: dict[Any, Any] = {}

    def graph_of(self, op: Any, name: str, inputs: Sequence[Any]) -> Any:
        """Return the graph of the function `name`, which an operation calls with `inputs`."""
        if (op, name) not in self._graphs:
            function = find_function(op, name)
            graph = find_traced_graph(function)
            if graph is None or id(graph) in self._taken:
                graph = _rebuild_graph(op, function, inputs)
            self._taken.add(id(graph))
            self._graphs[op, name] = graph
        return self._graphs[op, name]
