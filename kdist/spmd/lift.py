"""Lift variables out of an operation: it gets their values, and returns those that it changes.

Bodies of loops, conditions and compiled functions are pure: the variables that they change become
their arguments and results, as XLA does with all variables, and only the step itself assigns. So
each operation of a body has a rule. Divided variables are lifted where they are only read, too:
values that the replicas exchange are exchanged before and after the body.
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
from .effects import CALLS, effects_of, handle_source
from .functions import called_graphs, copy_of, hold_back, is_compiled
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
_FUNCTION_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
CONDITIONS = ("Case", "If", "StatelessCase", "StatelessIf")
_LOOPS = ("StatelessWhile", "While")


@dataclass(frozen=True)
class Variable:
    """A variable, in place of its handle."""

    handle: Any


@dataclass
class _State:
    """What a part of the program sees.

    Attributes:
        values: The current values of variables, by the id of the handle.
        is_divided: Whether any of them is divided.
        due: Whether the part is due, where it is computed whether or not; `None` if it is.
    """

    values: dict[int, Any]
    is_divided: bool = False
    due: Any = None

    def branch(self, chosen: Any = None) -> _State:
        """Return the same for a branch that is computed whether or not it is chosen."""
        dues = [due for due in (self.due, chosen) if due is not None]
        due = functools.reduce(tf.logical_and, dues) if dues else None
        return _State(dict(self.values), self.is_divided, due)


def lifted_places(op: Any, divided: Sequence[bool]) -> list[int]:
    """Return the inputs of an operation of the step that are variables to lift out of it.

    Args:
        op: The operation.
        divided: For each input, whether it is the handle of a divided variable.
    """
    places = {place for place, is_divided in enumerate(divided) if is_divided}
    if op.type in CALLS or op.type in _READ_AND_CHANGE:
        _, changed = effects_of(op, [False] * len(op.inputs))
        variables = (place for place in changed if _is_variable(op.inputs[place]))
        places |= {place for place in variables if _can_lift(op, place, op.inputs[place])}
    return sorted(places)


def _can_lift(op: Any, place: int, handle: Any) -> bool:
    """Whether every operation that takes a variable has a counterpart for its value."""
    if op.type not in (*_FUNCTION_CALLS, *CONDITIONS, *_LOOPS):
        return op.type in _CHANGES and _CHANGES[op.type].is_for(op, handle)
    return all(
        inner.type == "Identity" or _can_lift(inner, at, handle)
        for graph in called_graphs(op)
        for inner in graph.get_operations()
        for at, tensor in enumerate(inner.inputs)
        if handle_source(tensor) is graph.inputs[place - (op.type in CONDITIONS)]
    )


def lift(op: Any, divided: Sequence[bool]) -> list[Any]:
    """Write an operation of the traced step into its graph again, without variables.

    Args:
        op: The operation.
        divided: For each input, whether it is the handle of a divided variable.

    Returns:
        Its results.
    """
    places = lifted_places(op, divided)
    given = [Variable(t) if at in places else t for at, t in enumerate(op.inputs)]
    handles = {id(t.handle): t.handle for t in given if isinstance(t, Variable)}
    values = {
        key: gen_resource_variable_ops.read_variable_op(handle, _dtype_of(handle))
        for key, handle in handles.items()
    }
    state = _State(dict(values), any(divided))
    results = _run(op, given, state)
    with tf.control_dependencies([value.op for value in values.values()]):
        for key, value in state.values.items():
            if value is not values[key]:
                gen_resource_variable_ops.assign_variable_op(handles[key], value)
    return [one.handle if isinstance(one, Variable) else one for one in results]


def run_whole(op: Any, given: Sequence[Any], values: dict[int, Any]) -> list[Any]:
    """Do what an operation does as one device, in the default graph; returns its results.

    Args:
        op: The operation.
        given: Its inputs, `Variable` for variables.
        values: The values of these by the ids of their handles, which it may change.

    Raises:
        NotImplementedError: It takes a variable, and has no counterpart for its value.
    """
    if not any(isinstance(one, Variable) for one in given):
        return copy_whole(op, given)
    for place, one in enumerate(given):
        if isinstance(one, Variable) and not _can_lift(op, place, one.handle):
            raise NotImplementedError
    return _run(op, given, _State(values))


def read_variable(handle: Any, own: Any) -> Any:
    """Return the value of a variable on a replica; `None` if it is no variable.

    Args:
        handle: The variable in a traced step.
        own: The handle of the replica's copy or part.
    """
    return (
        gen_resource_variable_ops.read_variable_op(own, _dtype_of(handle))
        if _is_variable(handle)
        else None
    )


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
    if op.type in _FUNCTION_CALLS:
        return _run_call(op, given, state)
    if op.type in CONDITIONS:
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
    return change.run(op, given, state)


def _frames(op: Any) -> list[tuple[str, int]]:
    return [(frame.filename, frame.lineno) for frame in op.traceback or ()]


def _run_call(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
    """Run the operations of a function here, unless XLA compiles it: then call a pure one."""
    (graph,) = called_graphs(op)
    if not is_compiled(op):
        return _run_graph(graph, given, state)
    own = dict.fromkeys(id(t.handle) for t in given if isinstance(t, Variable))
    changed = _changed_by(op, given)
    places = [at for at, t in enumerate(given) if not _is_handle(t)]

    def run(tensors: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        inner = list(given)
        for place, tensor in zip(places, tensors, strict=True):
            inner[place] = tensor
        inside = _State(dict(zip(own, values, strict=True)), state.is_divided)
        outputs = _run_graph(graph, inner, inside)
        return [*outputs, *(inside.values[key] for key in changed)]

    call = tf.function(run, autograph=False, jit_compile=True)
    made = call([given[place] for place in places], [state.values[key] for key in own])
    state.values.update(zip(changed, made[len(op.outputs) :], strict=True))
    return list(made[: len(op.outputs)])


def _is_handle(value: Any) -> bool:
    """Whether an input is a variable, lifted or not: functions close over these."""
    return isinstance(value, Variable) or value.dtype == tf.resource


def _run_graph(graph: Any, given: Sequence[Any], state: _State) -> list[Any]:
    """Run the operations of a function, in the order in which they were made."""
    made: dict[int, Any] = {id(t): one for t, one in zip(graph.inputs, given, strict=True)}
    written: dict[Any, Any] = {}  # what stands for each operation
    default = ops.get_default_graph()
    for op in graph.get_operations():
        if op.type == "Placeholder":
            continue
        inputs = [made[id(t)] for t in op.inputs]
        waits = [own for one in op.control_inputs for own in written.get(one, ())]
        before = len(default.get_operations())
        with tf.control_dependencies(waits):
            if not any(isinstance(one, Variable) for one in inputs):
                if op.type == "UnsortedSegmentSum" and state.due is not None:
                    inputs[1] = _without_wrong(inputs[1], inputs[2], state.due)
                outputs = copy_whole(op, inputs)
                for result, output in zip(outputs, op.outputs, strict=True):
                    result.set_shape(output.shape)  # the program may have set it
            elif op.type == "Identity":
                outputs = inputs
            else:
                outputs = _run(op, inputs, state)
        written[op] = default.get_operations()[before:]
        hold_back(written[op], waits)
        made |= {id(t): one for t, one in zip(op.outputs, outputs, strict=True)}
    return [made[id(t)] for t in graph.outputs]


def _without_wrong(segments: Any, count: Any, due: Any) -> Any:
    """Leave out segments that are an error, unless they are due."""
    is_right = tf.logical_or(due, segments < tf.cast(count, segments.dtype))
    return tf.where(is_right, segments, -tf.ones_like(segments))


def copy_whole(op: Any, inputs: Sequence[Any]) -> list[Any]:
    """Make an operation in the default graph, with other inputs; returns its results."""
    made = copy_of(ops.get_default_graph(), op, inputs)
    for output, new in zip(op.outputs, made.outputs, strict=True):
        handle_data_util.copy_handle_data(output, new)
    return list(made.outputs)


def _changed_by(op: Any, given: Sequence[Any]) -> list[int]:
    """Return the ids of the handles of the lifted variables that an operation may change."""
    _, places = effects_of(op, [False] * len(op.inputs))
    changed = [given[place] for place in sorted(places)]
    return list(dict.fromkeys(id(v.handle) for v in changed if isinstance(v, Variable)))


def _cannot_fail(graph: Any) -> bool:
    """Whether a branch may be computed where the other one is due: nothing in it is an error."""
    outputs = [t.shape for t in graph.outputs if t.dtype != tf.resource]
    return all(shape.is_fully_defined() for shape in outputs) and all(
        (op.type in _NEVER_FAIL and _fits(op))
        or (op.type in _VARIABLES and all(_is_variable(t) for t in op.inputs[:1]))
        or (op.type in ("FloorDiv", "FloorMod") and _divides_by_constant(op))
        or (op.type == "StridedSlice" and _takes_constant(op))
        or (
            op.type in ("If", "StatelessIf", *_FUNCTION_CALLS)
            and all(map(_cannot_fail, called_graphs(op)))
        )
        for op in graph.get_operations()
    )


def _fits(op: Any) -> bool:
    """Whether it is known that an operation's numbers and shapes fit together."""
    if op.type == "Pow" and not op.inputs[0].dtype.is_floating:
        return False  # an integer to a negative power is an error
    shapes = [t.shape for t in op.inputs if t.shape.rank != 0]
    is_known = len(shapes) < 2 or all(shape.is_fully_defined() for shape in shapes)
    return is_known or op.type == "UnsortedSegmentSum"


def _divides_by_constant(op: Any) -> bool:
    divisor = tensor_util.constant_value(op.inputs[1])
    return divisor is not None and bool((divisor != 0).all())


def _takes_constant(op: Any) -> bool:
    """Whether a slice is known to be within its tensor: this was checked when it was traced."""
    known = all(tensor_util.constant_value(t) is not None for t in op.inputs[1:])
    return known and op.inputs[0].shape.is_fully_defined()


def _run_condition(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
    index, *rest = given
    keys = _changed_by(op, given)
    count = len(op.outputs)
    if state.is_divided and index.dtype == tf.bool and all(map(_cannot_fail, called_graphs(op))):
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
    keys = _changed_by(op, given)
    places = [place for place, one in enumerate(given) if not _is_handle(one)]

    def run(graph: Any, variables: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        inner = list(given)
        for place, one in zip(places, variables, strict=False):
            inner[place] = one
        own = state.branch()
        own.values.update(zip(keys, variables[len(places) :], strict=True))
        outputs = _run_graph(graph, inner, own)
        return outputs, [own.values[key] for key in keys]

    def iterate(*variables: Any) -> list[Any]:
        outputs, values = run(body, variables)
        return [*(outputs[place] for place in places), *values]

    def tested(variables: Sequence[Any]) -> list[Any]:
        (goes_on,), values = run(test, variables)
        return [*variables[: len(places)], *values, goes_on]

    variables = [*(given[place] for place in places), *(state.values[key] for key in keys)]
    shapes = [op.outputs[place].shape for place in places]
    shapes += [state.values[key].shape for key in keys]
    if _changes_variables(test):  # once more than the body runs
        made = tf.while_loop(
            lambda *v: v[-1],
            lambda *v: tested(iterate(*v[:-1])),
            tested(variables),
            shape_invariants=[*shapes, tf.TensorShape([])],
        )[:-1]
    else:
        made = tf.while_loop(
            lambda *v: run(test, v)[0][0], iterate, variables, shape_invariants=shapes
        )
    state.values.update(zip(keys, made[len(places) :], strict=True))
    results = list(given)
    for place, one in zip(places, made, strict=False):
        results[place] = one
    return results


def _changes_variables(graph: Any) -> bool:
    return any(effects_of(op, [False] * len(op.inputs))[1] for op in graph.get_operations())


@dataclass(frozen=True)
class _Change:
    """A counterpart of an operation that takes a variable, for the variable's value.

    Attributes:
        run: Called with the operation, its inputs and the state; returns the results.
        is_for: Whether it has the counterpart, with its attributes and the variable's handle.
    """

    run: Callable[[Any, Sequence[Any], _State], list[Any]]
    is_for: Callable[[Any, Any], bool] = lambda op, handle: True


def _of_value(make: Callable[..., Any], *, changes: bool = False) -> _Change:
    """Return how to do with a variable's value what an operation does with the variable."""

    def run(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
        variable, *rest = given
        result = make(op, state.values[id(variable.handle)], *rest)
        if not changes:
            return [result]
        state.values[id(variable.handle)] = result
        return []

    return _Change(run)


def _slice_assigned(op: Any, value: Any, *rest: Any) -> Any:
    masks = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    given = {f"{name}_mask": op.get_attr(f"{name}_mask") for name in masks}
    begin, end, strides, new = rest
    return tf.raw_ops.TensorStridedSliceUpdate(
        input=value, begin=begin, end=end, strides=strides, value=new, **given
    )


def _read_and_skip(op: Any, given: Sequence[Any], state: _State) -> list[Any]:
    """Read the state of a generator, two words of a counter and a key, and skip some counts."""
    variable, _, delta = given
    value = state.values[id(variable.handle)]
    skipped = tf.bitcast(delta * 256, tf.int64)
    low, high = value[0] + skipped, value[1]
    carry = tf.less(tf.bitcast(low, tf.uint64), tf.bitcast(skipped, tf.uint64))
    high += tf.cast(carry, tf.int64)
    state.values[id(variable.handle)] = tf.concat([[low, high], value[2:]], 0)
    return [value[:3]]


def _is_philox(op: Any, handle: Any) -> bool:
    (data,) = handle_data_util.get_resource_handle_data(handle).shape_and_type
    is_philox = tensor_util.constant_value(op.inputs[1]) == _PHILOX
    return bool(is_philox and tf.TensorShape(data.shape) == [3])


_PHILOX = 1  # TensorFlow's number of the algorithm

# Operations that change a variable and have a result.
_READ_AND_CHANGE = ("RngReadAndSkip",)
_CHANGES: dict[str, _Change] = {
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
    "RngReadAndSkip": _Change(_read_and_skip, _is_philox),
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
