"""Lift variables out of an operation: it gets their values, and returns those that it changes.

An optimizer that accumulates gradients updates its state in a condition. Where that state is
divided, the condition is made one of values: then each of its operations has a rule, and what the
replicas exchange is exchanged before and after it. XLA does the same with variables.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops, tensor_util
from tensorflow.python.ops import gen_resource_variable_ops, handle_data_util

from ..errors import UserError, user_line
from .effects import DRAWN_BY_XLA, effects_of
from .functions import called_graphs, copy_of
from .variables import SCATTERS, with_rows

_VARIABLES = {"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ReadVariableOp"}
PLAIN = {*_VARIABLES, "VarIsInitializedOp", "VariableShape"}
"""Operations of variables that have rules: they are not lifted out."""
_NEVER_FAIL = {  # of numbers, whatever they are
    *("Abs", "Add", "AddN", "AddV2", "All", "Any", "BroadcastTo", "Cast", "Const", "DivNoNan"),
    *("Equal", "Exp", "ExpandDims", "Fill", "Greater", "GreaterEqual", "Identity", "IdentityN"),
    *("IsFinite", "IsInf", "IsNan", "L2Loss", "Less", "LessEqual", "Log", "LogicalAnd"),
    *("LogicalNot", "LogicalOr", "MatMul", "Max", "Maximum", "Mean", "Min", "Minimum", "Mul"),
    *("Neg", "NoOp", "NotEqual", "OnesLike", "Pack", "Placeholder", "Pow", "Rank", "RealDiv"),
    *("Reciprocal", "Reshape", "Rsqrt", "Select", "SelectV2", "Shape", "Sigmoid", "Sign", "Sqrt"),
    *(
        "Square",
        "SquaredDifference",
        "Squeeze",
        "StopGradient",
        "Sub",
        "Sum",
        "Tanh",
        "Transpose",
        "UnsortedSegmentSum",
    ),
    "ZerosLike",
}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_CONDITIONS = ("Case", "If", "StatelessCase", "StatelessIf")
_LOOPS = ("StatelessWhile", "While")


@dataclass(frozen=True)
class _Variable:
    """A variable, in place of its handle."""

    handle: Any


@dataclass
class _State:
    """What a part of the program sees.

    Attributes:
        values: The current values of variables, by the id of the handle.
        due: Whether the part is due, where it is computed whether or not; `None` if it is.
    """

    values: dict[int, Any]
    due: Any = None

    def branch(self, chosen: Any = None) -> _State:
        """Return the same for a branch that is computed whether or not it is chosen."""
        dues = [one for one in (self.due, chosen) if one is not None]
        return _State(dict(self.values), functools.reduce(tf.logical_and, dues) if dues else None)


def lift(op: Any) -> tuple[list[Any], list[Any]]:
    """Write an operation of the traced step without variables into its graph.

    Returns:
        The operations that stand for it, in order, and its results.
    """
    graph = op.graph
    before = len(graph.get_operations())
    with graph.as_default(), tf.control_dependencies(list(op.control_inputs)):
        given = [_Variable(t) if _is_variable(t) else t for t in op.inputs]
        handles = {id(one.handle): one.handle for one in given if isinstance(one, _Variable)}
        values = {
            key: gen_resource_variable_ops.read_variable_op(handle, _dtype_of(handle))
            for key, handle in handles.items()
        }
        state = _State(dict(values))
        results = _run(op, given, state)
        outputs = [one.handle if isinstance(one, _Variable) else one for one in results]
        with tf.control_dependencies([value.op for value in values.values()]):
            for key, value in state.values.items():
                if value is not values[key]:
                    gen_resource_variable_ops.assign_variable_op(handles[key], value)
    return graph.get_operations()[before:], outputs


def _is_variable(tensor: Any) -> bool:
    if tensor.dtype != tf.resource:
        return False
    data = handle_data_util.get_resource_handle_data(tensor)
    return data is not None and data.is_set and len(data.shape_and_type) == 1


def _dtype_of(handle: Any) -> Any:
    data = handle_data_util.get_resource_handle_data(handle)
    return tf.as_dtype(data.shape_and_type[0].dtype)


def _run(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
    """Do what an operation does with values in place of variables; returns its results."""
    if op.type in _CALLS and not any(map(_draws, called_graphs(op))):
        return _run_graph(called_graphs(op)[0], given, state)
    if op.type in _CONDITIONS:
        return _run_condition(op, given, state)
    if op.type in _LOOPS:
        return _run_loop(op, given, state)
    change = _CHANGES.get(op.type)
    if change is None:
        raise UserError(
            f"the operation {op.type} ({user_line(_frames(op)) or op.name}) takes a variable of an"
            " optimizer that is divided over the replicas, which it cannot be for this operation:"
            " leave out shard_optimizer"
        )
    return change(op, given, state)


def _frames(op: Any) -> list[tuple[str, int]]:
    return [(frame.filename, frame.lineno) for frame in op.traceback or ()]


def _draws(graph: Any) -> bool:
    """Whether a function that XLA compiles draws, which gives other numbers than TensorFlow."""
    return any(op.type in DRAWN_BY_XLA for op in graph.get_operations())


def _run_graph(graph: Any, given: Sequence[Any], state: _State) -> list[Any]:
    """Run the operations of a function, in the order in which they were made."""
    made: dict[int, Any] = {id(t): one for t, one in zip(graph.inputs, given, strict=True)}
    written: dict[Any, Any] = {}
    for op in graph.get_operations():
        if op.type == "Placeholder":
            continue
        inputs = [made[id(t)] for t in op.inputs]
        waits = [written[one] for one in op.control_inputs if one in written]
        with tf.control_dependencies(waits):
            if not any(isinstance(one, _Variable) for one in inputs):
                if op.type == "UnsortedSegmentSum" and state.due is not None:
                    inputs[1] = _without_wrong(inputs[1], inputs[2], state.due)
                outputs = _copy(op, inputs)
                written[op] = outputs[0].op if outputs else _last_operation()
            elif op.type == "Identity":
                outputs = inputs
            else:
                outputs = _run(op, inputs, state)
        made |= {id(t): one for t, one in zip(op.outputs, outputs, strict=True)}
    return [made[id(t)] for t in graph.outputs]


def _without_wrong(segments: Any, count: Any, due: Any) -> Any:
    """Leave out segments that are an error, unless they are due."""
    is_right = tf.logical_or(due, segments < tf.cast(count, segments.dtype))
    return tf.where(is_right, segments, -tf.ones_like(segments))


def _last_operation() -> Any:
    return ops.get_default_graph().get_operations()[-1]


def _copy(op: Any, inputs: Sequence[Any]) -> list[Any]:
    made = copy_of(ops.get_default_graph(), op, inputs)
    for output, new in zip(op.outputs, made.outputs, strict=True):
        handle_data_util.copy_handle_data(output, new)
    return list(made.outputs)


def _changed_by(op: Any, given: Sequence[Any]) -> list[int]:
    """Return the ids of the handles of the variables that a condition or loop may change."""
    _, places = effects_of(op, [False] * len(op.inputs))
    keys = (id(given[place].handle) for place in sorted(places) if place < len(given))
    return list(dict.fromkeys(keys))


def _cannot_fail(graph: Any) -> bool:
    """Whether a branch may be computed where the other one is due: nothing in it is an error."""
    outputs = [t.shape for t in graph.outputs if t.dtype != tf.resource]
    return all(shape.is_fully_defined() for shape in outputs) and all(
        op.type in _NEVER_FAIL
        or (op.type in _VARIABLES and all(_is_variable(t) for t in op.inputs[:1]))
        or (op.type in ("FloorDiv", "FloorMod") and _divides_by_constant(op))
        or (op.type == "StridedSlice" and _takes_constant(op))
        or (op.type in ("If", "StatelessIf", *_CALLS) and all(map(_cannot_fail, called_graphs(op))))
        for op in graph.get_operations()
    )


def _divides_by_constant(op: Any) -> bool:
    divisor = tensor_util.constant_value(op.inputs[1])
    return divisor is not None and bool((divisor != 0).all())


def _takes_constant(op: Any) -> bool:
    """Whether a slice is known to be within its tensor: this was checked when it was traced."""
    known = all(tensor_util.constant_value(t) is not None for t in op.inputs[1:])
    return known and op.inputs[0].shape.is_fully_defined()


def _run_condition(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
    index, *rest = given
    keys = [key for key in _changed_by(op, given) if key in state.values]
    count = len(op.outputs)
    if index.dtype == tf.bool and all(map(_cannot_fail, called_graphs(op))):
        # Both at once: what they exchange is exchanged in the step, of which they are then a part.
        made = []
        for graph, chosen in zip(called_graphs(op), (index, tf.logical_not(index)), strict=True):
            own = state.branch(chosen)
            made.append([*_run_graph(graph, rest, own), *(own.values[key] for key in keys)])
        results = [
            one if one is other else tf.where(index, one, other)
            for one, other in zip(*made, strict=True)
        ]
        state.values.update(zip(keys, results[count:], strict=True))
        return results[:count]

    def branch(graph: Any) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            own = state.branch()
            outputs = _run_graph(graph, rest, own)
            return [tf.identity(one) for one in (*outputs, *(own.values[key] for key in keys))]

        return run

    branches = [branch(graph) for graph in called_graphs(op)]
    made = tf.switch_case(index, branches) if "Case" in op.type else tf.cond(index, *branches)
    made = list(made) if isinstance(made, list | tuple) else [made]
    state.values.update(zip(keys, made[count:], strict=True))
    return made[:count]


def _run_loop(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
    body, test = called_graphs(op)
    keys = [key for key in _changed_by(op, given) if key in state.values]
    places = [place for place, one in enumerate(given) if not isinstance(one, _Variable)]

    def around(graph: Any) -> Callable[..., list[Any]]:
        def run(*variables: Any) -> list[Any]:
            inner = list(given)
            for place, one in zip(places, variables, strict=False):
                inner[place] = one
            own = state.branch()
            own.values.update(zip(keys, variables[len(places) :], strict=True))
            outputs = _run_graph(graph, inner, own)
            if graph is test:
                return outputs
            return [*(outputs[place] for place in places), *(own.values[key] for key in keys)]

        return run

    made = tf.while_loop(
        lambda *v: around(test)(*v)[0],
        around(body),
        [*(given[place] for place in places), *(state.values[key] for key in keys)],
        shape_invariants=[
            *(op.outputs[place].shape for place in places),
            *(state.values[key].shape for key in keys),
        ],
    )
    state.values.update(zip(keys, made[len(places) :], strict=True))
    results = list(op.outputs)  # handles stay what they are
    for place, one in zip(places, made, strict=False):
        results[place] = one
    return [
        given[place] if isinstance(given[place], _Variable) else one
        for place, one in enumerate(results)
    ]


def _of_value(
    make: Callable[..., Any], *, changes: bool = False
) -> Callable[[Any, Sequence[Any], _State], list[Any]]:
    """Return how to do with a variable's value what an operation does with the variable."""

    def run(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
        variable, *rest = given
        result = make(op, state.values[id(variable.handle)], *rest)
        if not changes:
            return [result]
        state.values[id(variable.handle)] = result
        return []

    return run


def _slice_assigned(op: Any, value: Any, *rest: Any) -> Any:
    masks = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    given = {f"{name}_mask": op.get_attr(f"{name}_mask") for name in masks}
    begin, end, strides, new = rest
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=value, begin=begin, end=end, strides=strides, value=new, **given
    )


_CHANGES: dict[str, Callable[[Any, Sequence[Any], _State], list[Any]]] = {
    "ReadVariableOp": _of_value(lambda op, value: value),
    "VariableShape": _of_value(lambda op, value: tf.shape(value, op.outputs[0].dtype)),
    "VarIsInitializedOp": _of_value(lambda op, value: tf.constant(True)),
    "ResourceGather": _of_value(
        lambda op, value, indices: tf.gather(value, indices, batch_dims=op.get_attr("batch_dims"))
    ),
    "ResourceGatherNd": _of_value(lambda op, value, indices: tf.gather_nd(value, indices)),
    "AssignVariableOp": _of_value(lambda op, value, new: tf.identity(new), changes=True),
    "AssignAddVariableOp": _of_value(lambda op, value, new: value + new, changes=True),
    "AssignSubVariableOp": _of_value(lambda op, value, new: value - new, changes=True),
    "ResourceStridedSliceAssign": _of_value(_slice_assigned, changes=True),
    **{
        f"ResourceScatter{kind.title()}": _of_value(
            lambda op, value, i, u, kind=kind: with_rows(kind, value, i, u), changes=True
        )
        for kind in ("add", "sub", "update", "min", "max", "mul", "div")
    },
    **{
        f"ResourceScatterNd{kind.title()}": _of_value(
            lambda op, value, i, u, kind=kind: SCATTERS[kind](value, i, u), changes=True
        )
        for kind in ("add", "sub", "update", "min", "max")
    },
}
