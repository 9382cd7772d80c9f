"""Functionalize operations: they get values of variables, and return the changed values.

Bodies of loops, conditions and compiled functions are pure: the variables that a body changes
become its arguments and results, as XLA does with all variables, and only the step itself assigns.
So each operation of a body has a rule. Divided variables become arguments even where they are only
read: bodies have no exchanges, so the values are exchanged before and after the body.

`functionalize` writes an operation of the step again, and `compute_whole` does so for
`validation.py`. `_write_functional` writes each type: a call, a condition, a loop, or an operation
with a counterpart (`_COUNTERPARTS`). `_State` has the variables' values at a point of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops, tensor_util
from tensorflow.python.ops import gen_resource_variable_ops, handle_data_util

from ..errors import UserError, find_last_user_line
from .divided_variables import SCATTERS, scatter_rows
from .effects import effects_of, handle_source
from .functions import called_graphs, copy_operation, hold_back, is_compiled, traceback_lines
from .op_types import CALLS, CONDITIONS, FUNCTION_CALLS, LOOPS, NEVER_FAIL, VARIABLES
from .tensor_facts import Ref


@dataclass(frozen=True)
class Variable:
    """A variable that stands in place of its handle."""

    handle: tf.Tensor

    @property
    def key(self) -> Ref:
        """Key of the variable's value in a state."""
        return self.handle.ref()


Value = Any
"""A tensor, or the `Variable` that an operation takes in place of its handle."""


def variables_in(values: Iterable[Value]) -> list[Variable]:
    """Return the variables among `values`."""
    return [value for value in values if isinstance(value, Variable)]


@dataclass
class _State:
    """The variables' values in a part of the program, by the keys of the variables.

    Attributes:
        is_divided: Whether any variable is divided.
        is_chosen: Whether the branch is chosen, a boolean tensor, in a branch that is computed in
            any case; `None` everywhere else.
    """

    values: dict[Ref, tf.Tensor]
    is_divided: bool = False
    is_chosen: tf.Tensor | None = None

    def make_branch_state(self, is_chosen: tf.Tensor | None = None) -> _State:
        """Return the state of a branch: chosen if `is_chosen`, and if this state is chosen."""
        conditions = [test for test in (self.is_chosen, is_chosen) if test is not None]
        both = functools.reduce(tf.logical_and, conditions) if conditions else None
        return _State(dict(self.values), self.is_divided, both)


def functionalized_inputs(op: tf.Operation, divided: Sequence[bool]) -> list[int]:
    """Return the indices of inputs that are variables to be taken out of an operation.

    `divided` says for each input whether it is the handle of a divided variable.
    """
    indices = {index for index, is_divided in enumerate(divided) if is_divided}
    if op.type in CALLS or op.type in _READ_AND_CHANGE:
        _, changed = effects_of(op, [False] * len(op.inputs))
        variables = (index for index in changed if _is_variable(op.inputs[index]))
        indices |= {index for index in variables if _has_counterpart(op, index, op.inputs[index])}
    return sorted(indices)


def _has_counterpart(op: tf.Operation, index: int, handle: tf.Tensor) -> bool:
    """Whether `op` has a counterpart, or all operations in its functions that take the variable."""
    if op.type not in (*FUNCTION_CALLS, *CONDITIONS, *LOOPS):
        return op.type in _COUNTERPARTS and (op.type != "RngReadAndSkip" or _is_philox(op, handle))
    return all(
        inner.type == "Identity" or _has_counterpart(inner, position, handle)
        for graph in called_graphs(op)
        for inner in graph.get_operations()
        for position, tensor in enumerate(inner.inputs)
        if handle_source(tensor) is graph.inputs[index - (op.type in CONDITIONS)]
    )


def functionalize(op: tf.Operation, divided: Sequence[bool]) -> list[tf.Tensor]:
    """Write an operation of the traced step again, with values in place of variables.

    `divided` says for each input whether it is the handle of a divided variable.
    """
    indices = functionalized_inputs(op, divided)
    inputs = [Variable(t) if index in indices else t for index, t in enumerate(op.inputs)]
    handles = {variable.key: variable.handle for variable in variables_in(inputs)}
    values = {
        key: gen_resource_variable_ops.read_variable_op(handle, _dtype_of(handle))
        for key, handle in handles.items()
    }
    state = _State(dict(values), any(divided))
    results = _write_functional(op, inputs, state)
    with tf.control_dependencies([value.op for value in values.values()]):
        for key, value in state.values.items():
            if value is not values[key]:
                gen_resource_variable_ops.assign_variable_op(handles[key], value)
    return [value.handle if isinstance(value, Variable) else value for value in results]


def compute_whole(
    op: tf.Operation, inputs: Sequence[Value], values: dict[Ref, tf.Tensor]
) -> list[Value]:
    """Compute an operation as a single device would, in the default graph; return its results.

    `inputs` has a `Variable` for each variable, and `values` the variables' values, by their keys:
    changed values are written into `values`. `NotImplementedError` means that the operation takes a
    variable, and has no counterpart for its value.
    """
    if not variables_in(inputs):
        return copy_whole(op, inputs)
    for index, value in enumerate(inputs):
        if isinstance(value, Variable) and not _has_counterpart(op, index, value.handle):
            raise NotImplementedError
    return _write_functional(op, inputs, _State(values))


def read_variable(handle: tf.Tensor, own: Any) -> Any:
    """Return the value of a variable on a replica; `None` if the handle is not a variable's.

    `handle` is the variable's handle in a traced step, `own` the handle of the replica's copy or
    part.
    """
    return (
        gen_resource_variable_ops.read_variable_op(own, _dtype_of(handle))
        if _is_variable(handle)
        else None
    )


def _is_variable(tensor: tf.Tensor) -> bool:
    if tensor.dtype != tf.resource:
        return False
    data = handle_data_util.get_resource_handle_data(tensor)
    return data is not None and data.is_set and len(data.shape_and_type) == 1


def _dtype_of(handle: tf.Tensor) -> Any:
    data = handle_data_util.get_resource_handle_data(handle)
    return tf.as_dtype(data.shape_and_type[0].dtype)


def _write_functional(op: tf.Operation, inputs: Sequence[Value], state: _State) -> list[Value]:
    """Write an operation with values in place of variables; return its results."""
    if op.type in FUNCTION_CALLS:
        return _write_call(op, inputs, state)
    if op.type in CONDITIONS:
        return _write_condition(op, inputs, state)
    if op.type in LOOPS:
        return _write_loop(op, inputs, state)
    counterpart = _COUNTERPARTS.get(op.type)
    if counterpart is None:
        place = find_last_user_line(traceback_lines(op)) or op.name
        raise UserError(
            f"the operation {op.type} ({place}) does not support a divided variable: leave out"
            " shard_optimizer and shard_weights"
        )
    return counterpart(op, inputs, state)


def _write_call(op: tf.Operation, inputs: Sequence[Value], state: _State) -> list[Value]:
    """Write the operations of a called function; for a function that XLA compiles, a pure call."""
    (graph,) = called_graphs(op)
    if not is_compiled(op):
        return _write_graph(graph, inputs, state)
    own = dict.fromkeys(variable.key for variable in variables_in(inputs))
    changed = _find_changed(op, inputs)
    indices = [index for index, value in enumerate(inputs) if not _is_resource(value)]

    def call_graph(tensors: Sequence[tf.Tensor], values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        inside = _State(dict(zip(own, values, strict=True)), state.is_divided)
        outputs = _write_graph(graph, _replace_at(inputs, indices, tensors), inside)
        return [*outputs, *(inside.values[key] for key in changed)]

    call = tf.function(call_graph, autograph=False, jit_compile=True)
    results = call([inputs[index] for index in indices], [state.values[key] for key in own])
    state.values.update(zip(changed, results[len(op.outputs) :], strict=True))
    return list(results[: len(op.outputs)])


def _replace_at(
    values: Sequence[Value], indices: Sequence[int], others: Sequence[Value]
) -> list[Value]:
    found = list(values)
    for index, other in zip(indices, others, strict=True):
        found[index] = other
    return found


def _is_resource(value: Value) -> bool:
    """Whether an input is a variable or another resource: functions close over both."""
    return isinstance(value, Variable) or value.dtype == tf.resource


def _write_graph(graph: tf.Graph, given: Sequence[Value], state: _State) -> list[Value]:
    """Write the operations of a function, in the order in which they were made."""
    values: dict[Ref, Value] = dict(zip((t.ref() for t in graph.inputs), given, strict=True))
    written: dict[tf.Operation, list[tf.Operation]] = {}  # For each operation, its copies.
    default = ops.get_default_graph()
    for op in graph.get_operations():
        if op.type == "Placeholder":
            continue
        inputs = [values[tensor.ref()] for tensor in op.inputs]
        waits = [copy for control in op.control_inputs for copy in written.get(control, ())]
        before = len(default.get_operations())
        with tf.control_dependencies(waits):
            if variables_in(inputs):
                outputs = inputs if op.type == "Identity" else _write_functional(op, inputs, state)
            else:
                if op.type == "UnsortedSegmentSum" and state.is_chosen is not None:
                    inputs[1] = _mask_wrong_segments(inputs[1], inputs[2], state.is_chosen)
                outputs = copy_whole(op, inputs)
                for result, output in zip(outputs, op.outputs, strict=True):
                    result.set_shape(output.shape)  # The program may have set the shape.
        written[op] = default.get_operations()[before:]
        hold_back(written[op], waits)
        values |= zip((output.ref() for output in op.outputs), outputs, strict=True)
    return [values[tensor.ref()] for tensor in graph.outputs]


def _mask_wrong_segments(segments: tf.Tensor, count: tf.Tensor, is_chosen: tf.Tensor) -> tf.Tensor:
    """Make segment ids that would be an error negative, in a branch that is not chosen."""
    is_right = tf.logical_or(is_chosen, segments < tf.cast(count, segments.dtype))
    return tf.where(is_right, segments, -tf.ones_like(segments))


def copy_whole(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Copy an operation into the default graph, with new inputs; return its results."""
    copy = copy_operation(ops.get_default_graph(), op, inputs)
    for output, new in zip(op.outputs, copy.outputs, strict=True):
        handle_data_util.copy_handle_data(output, new)
    return list(copy.outputs)


def _find_changed(op: tf.Operation, inputs: Sequence[Value]) -> list[Ref]:
    _, indices = effects_of(op, [False] * len(op.inputs))
    changed = variables_in(inputs[index] for index in sorted(indices))
    return list(dict.fromkeys(variable.key for variable in changed))


def _cannot_fail(graph: tf.Graph) -> bool:
    """Whether a branch may be computed even if it is not chosen: no operation in it can fail."""
    outputs = [t.shape for t in graph.outputs if t.dtype != tf.resource]
    return all(shape.is_fully_defined() for shape in outputs) and all(
        (op.type in NEVER_FAIL and _is_known_to_fit(op))
        or (op.type in VARIABLES and all(_is_variable(t) for t in op.inputs[:1]))
        or (op.type in ("FloorDiv", "FloorMod") and _divides_by_constant(op))
        or (op.type == "StridedSlice" and _is_constant_slice(op))
        or (
            op.type in ("If", "StatelessIf", *FUNCTION_CALLS)
            and all(map(_cannot_fail, called_graphs(op)))
        )
        for op in graph.get_operations()
    )


def _is_known_to_fit(op: tf.Operation) -> bool:
    """Whether an operation's numbers and shapes are known to fit together."""
    if op.type == "Pow" and not op.inputs[0].dtype.is_floating:
        return False  # an integer to a negative power is an error
    shapes = [t.shape for t in op.inputs if t.shape.rank != 0]
    is_known = len(shapes) < 2 or all(shape.is_fully_defined() for shape in shapes)
    return is_known or op.type == "UnsortedSegmentSum"


def _divides_by_constant(op: tf.Operation) -> bool:
    divisor = tensor_util.constant_value(op.inputs[1])
    return divisor is not None and bool((divisor != 0).all())


def _is_constant_slice(op: tf.Operation) -> bool:
    """Whether a slice has constant bounds, which tracing has checked."""
    known = all(tensor_util.constant_value(t) is not None for t in op.inputs[1:])
    return known and op.inputs[0].shape.is_fully_defined()


def _write_condition(op: tf.Operation, inputs: Sequence[Value], state: _State) -> list[Value]:
    index, *rest = inputs
    keys = _find_changed(op, inputs)
    graphs = called_graphs(op)

    def run_graph(graph: tf.Graph, is_chosen: tf.Tensor | None = None) -> list[tf.Tensor]:
        own = state.make_branch_state(is_chosen)
        outputs = _write_graph(graph, rest, own)
        return [*outputs, *(own.values[key] for key in keys)]

    def run_copied(graph: tf.Graph) -> list[tf.Tensor]:
        return [tf.identity(result) for result in run_graph(graph)]

    if state.is_divided and index.dtype == tf.bool and all(map(_cannot_fail, graphs)):
        # Both branches become a part of the step: there, their values can be exchanged.
        then, otherwise = (
            run_graph(graph, is_chosen)
            for graph, is_chosen in zip(graphs, (index, tf.logical_not(index)), strict=True)
        )
        results = [
            mine if mine is other else tf.where(index, mine, other)
            for mine, other in zip(then, otherwise, strict=True)
        ]
    else:
        branches = [functools.partial(run_copied, graph) for graph in graphs]
        results = (
            tf.switch_case(index, branches) if "Case" in op.type else tf.cond(index, *branches)
        )
        results = list(results) if isinstance(results, list | tuple) else [results]
    count = len(op.outputs)
    state.values.update(zip(keys, results[count:], strict=True))
    return results[:count]


def _write_loop(op: tf.Operation, inputs: Sequence[Value], state: _State) -> list[Value]:
    body, test = called_graphs(op)
    keys = _find_changed(op, inputs)
    indices = [index for index, value in enumerate(inputs) if not _is_resource(value)]
    count = len(indices)

    def run_graph(
        graph: tf.Graph, variables: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        own = state.make_branch_state()
        own.values.update(zip(keys, variables[count:], strict=True))
        outputs = _write_graph(graph, _replace_at(inputs, indices, variables[:count]), own)
        return outputs, [own.values[key] for key in keys]

    def iterate(*variables: tf.Tensor) -> list[tf.Tensor]:
        outputs, values = run_graph(body, variables)
        return [*(outputs[index] for index in indices), *values]

    def append_test(variables: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        (goes_on,), values = run_graph(test, variables)
        return [*variables[:count], *values, goes_on]

    variables = [*(inputs[index] for index in indices), *(state.values[key] for key in keys)]
    shapes = [op.outputs[index].shape for index in indices]
    shapes += [state.values[key].shape for key in keys]
    # A condition that changes variables runs in the body, and once before the loop: it runs once
    # more often than the body.
    if _changes_variables(test):
        results = tf.while_loop(
            lambda *values: values[-1],
            lambda *values: append_test(iterate(*values[:-1])),
            append_test(variables),
            shape_invariants=[*shapes, tf.TensorShape([])],
        )[:-1]
    else:
        results = tf.while_loop(
            lambda *values: run_graph(test, values)[0][0],
            iterate,
            variables,
            shape_invariants=shapes,
        )
    state.values.update(zip(keys, results[count:], strict=True))
    return _replace_at(inputs, indices, results[:count])


def _changes_variables(graph: tf.Graph) -> bool:
    return any(effects_of(op, [False] * len(op.inputs))[1] for op in graph.get_operations())


# A counterpart of an operation that takes a variable computes with the variable's value instead. It
# is a function of the operation, its inputs and the state, and returns the results.

_Counterpart = Callable[[tf.Operation, Sequence[Value], _State], list[Value]]


def _make_counterpart(make: Callable[..., tf.Tensor], *, changes: bool = False) -> _Counterpart:
    """Return the counterpart that computes a result, or the changed value, from the old value."""

    def compute(op: tf.Operation, inputs: Sequence[Value], state: _State) -> list[tf.Tensor]:
        variable, *rest = inputs
        result = make(op, state.values[variable.key], *rest)
        if not changes:
            return [result]
        state.values[variable.key] = result
        return []

    return compute


def _assign_slice(op: tf.Operation, value: Any, *rest: Any) -> Any:
    masks = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    given = {f"{name}_mask": op.get_attr(f"{name}_mask") for name in masks}
    begin, end, strides, new = rest
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=value, begin=begin, end=end, strides=strides, value=new, **given
    )


def _read_and_skip(op: tf.Operation, inputs: Sequence[Value], state: _State) -> list[Value]:
    """Read the state of a generator, and skip `delta` draws.

    The state is two words of a counter, and a key.
    """
    variable, _, delta = inputs
    value = state.values[variable.key]
    skipped = tf.bitcast(delta * 256, tf.int64)
    low, high = value[0] + skipped, value[1]
    carry = tf.less(tf.bitcast(low, tf.uint64), tf.bitcast(skipped, tf.uint64))
    high += tf.cast(carry, tf.int64)
    state.values[variable.key] = tf.concat([[low, high], value[2:]], 0)
    return [value[:3]]


def _is_philox(op: tf.Operation, handle: tf.Tensor) -> bool:
    (data,) = handle_data_util.get_resource_handle_data(handle).shape_and_type
    is_philox = tensor_util.constant_value(op.inputs[1]) == _PHILOX
    return bool(is_philox and tf.TensorShape(data.shape) == [3])


_PHILOX = 1  # TensorFlow's number of the algorithm

# Operations that change a variable and also return a result.
_READ_AND_CHANGE = ("RngReadAndSkip",)
_COUNTERPARTS: dict[str, _Counterpart] = {
    "ReadVariableOp": _make_counterpart(lambda op, value: value),
    "VariableShape": _make_counterpart(lambda op, value: tf.shape(value, op.outputs[0].dtype)),
    "VarIsInitializedOp": _make_counterpart(lambda op, value: tf.constant(True)),
    "ResourceGather": _make_counterpart(
        lambda op, value, indices: tf.gather(value, indices, batch_dims=op.get_attr("batch_dims"))
    ),
    "ResourceGatherNd": _make_counterpart(lambda op, value, indices: tf.gather_nd(value, indices)),
    "AssignVariableOp": _make_counterpart(lambda op, value, new: tf.identity(new), changes=True),
    "AssignAddVariableOp": _make_counterpart(lambda op, value, new: value + new, changes=True),
    "AssignSubVariableOp": _make_counterpart(lambda op, value, new: value - new, changes=True),
    "RngReadAndSkip": _read_and_skip,
    "ResourceStridedSliceAssign": _make_counterpart(_assign_slice, changes=True),
    **{
        f"ResourceScatter{kind.title()}": _make_counterpart(
            lambda op, value, i, u, kind=kind: scatter_rows(kind, value, i, u), changes=True
        )
        for kind in ("add", "sub", "update", "min", "max", "mul", "div")
    },
    **{
        f"ResourceScatterNd{kind.title()}": _make_counterpart(
            lambda op, value, i, u, kind=kind: SCATTERS[kind](value, i, u), changes=True
        )
        for kind in ("add", "sub", "update", "min", "max")
    },
}
