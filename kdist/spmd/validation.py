"""Validate a planned step: every operation is also computed whole, and compared with its parts.

With `KDIST_VERIFY=1`, each operation of the step itself gets its inputs as one device would have
them, put together from the replicas' parts: rows joined, sums added up. Its results have to be what
the replicas have. So an error is found in the operation that made it, and rounding errors do not
grow from one operation to the next. A body of a loop or condition is compared by its results. What
acts outside of the program runs once, and its results are trusted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .effects import DRAWN_BY_XLA, effects_of
from .explanation import place_of
from .functions import called_graphs, kernel_of
from .lift import CONDITIONS, Variable, copy_whole, read_variable, run_whole
from .placements import Opaque, Partial, Replicate, Rows, Shard
from .plan import BEFORE, Item, is_never_used
from .program import Program, reduce_stacked
from .rules.elementwise import BROADCASTING, SAME_SHAPES, UNARY
from .sizes import AnySize, AxisSize, Space
from .stage import WRONG

_GROWTH, _XLA_GROWTH = 64.0, 2.0**14
"""What rounding may make of a result: times what a change of the last digits of all inputs does.

XLA computes functions such as exponentials less exactly.
"""
_ELEMENTWISE = {*UNARY, *BROADCASTING, *SAME_SHAPES} - {"AddN"}  # which add up no rounding errors
# TensorFlow's optimizer may add axes of size 1, and a list may leave sizes open.
_SAY_MORE_OR_LESS = ("BroadcastGradientArgs", "TensorListElementShape")
_OF_REPLICAS = ("part_norms",)  # kernels whose results are about the replicas themselves


def is_on() -> bool:
    """Whether steps that are traced now are validated."""
    return os.environ.get("KDIST_VERIFY") == "1"


@contextlib.contextmanager
def validated() -> Iterator[None]:
    """Validate the steps that are traced inside the `with` block."""
    before = os.environ.get("KDIST_VERIFY")
    os.environ["KDIST_VERIFY"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["KDIST_VERIFY"]
        else:
            os.environ["KDIST_VERIFY"] = before


@dataclass
class _Compared:
    """A tensor of the step, by tensors that are compared when it runs.

    Attributes:
        op: The operation; a variable's handle, whose value after the step it is.
        placement: Where its values are.
        parts: What each replica has.
        whole: The parts, put together.
        expected: The result of the operation, computed whole; `None` for one that is trusted.
        changed: The same, of inputs whose last digits are others.
        counts: The planned number of rows of each replica.
        growth: Times what the change makes of it, rounding may make of it.
    """

    op: Any
    placement: Any
    parts: Sequence[Any]
    whole: Any
    expected: Any = None
    changed: Any = None
    counts: Any = None
    growth: float = _GROWTH

    def tensors(self) -> dict[str, Any]:
        """Return the tensors by what they are."""
        named = {f"part {at}": part for at, part in enumerate(self.parts)}
        named |= {"whole": self.whole, "expected": self.expected}
        named |= {"changed": self.changed, "counts": self.counts}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def error(self, found: dict[str, Any]) -> str:
        """Return what is wrong with the values of the tensors; nothing if they are right."""
        parts = [found[f"part {at}"] for at in range(len(self.parts))]
        placement, whole, expected = self.placement, found["whole"], found.get("expected")
        if isinstance(placement, Shard):
            sizes = [part.shape[placement.axis] for part in parts]
            if sizes != found["counts"].tolist():
                return f"the replicas have {sizes} rows, not {found['counts'].tolist()}"
            rows = np.moveaxis(whole, placement.axis, 0)
            equal = np.broadcast_to(rows[:1], rows.shape) if len(rows) else rows
            if placement.uniform and (error := _difference(rows, equal, None, self.growth)):
                return f"its rows differ, although they are said to be equal: {error}"
        shapes = [_without(part.shape, placement) for part in parts]
        if len({*shapes, _without(whole.shape, placement)}) > 1:
            return f"the replicas have shapes {shapes}, of {whole.shape}"
        if isinstance(placement, Replicate) and not all(_same(parts[0], p) for p in parts[1:]):
            return "the replicas have other values"
        if expected is None:
            return ""
        if (expected.shape, expected.dtype) != (whole.shape, whole.dtype):
            return f"{whole.dtype}{whole.shape}, not {expected.dtype}{expected.shape}"
        is_sum = placement == Partial() and whole.dtype.kind not in "biu"
        added = sum(abs(part.astype(_wide_of(part))) for part in parts) if is_sum else 0.0
        return _difference(whole, expected, found.get("changed"), self.growth, added)


def _without(shape: tuple[int, ...], placement: Any) -> tuple[int, ...]:
    axis = placement.axis if isinstance(placement, Shard) else -1
    return tuple(size for at, size in enumerate(shape) if at != axis)


def _same(one: Any, other: Any) -> bool:
    return bool(np.all((one == other) | ((one != one) & (other != other))))


def _wide_of(value: Any) -> Any:
    """Return a type in which to compare values that are no integers."""
    return np.complex128 if value.dtype.kind == "c" else np.float64


def _difference(whole: Any, expected: Any, changed: Any, growth: float, added: Any = 0.0) -> str:
    """Return how values differ, beyond what rounding may make of them.

    Replicas add up values of the sizes `added`, which may be larger than their sum.
    """
    if _same(whole, expected):
        return ""
    if changed is None or changed.shape != expected.shape:
        changed = expected
    if expected.dtype.kind in "OSUbiu":
        wrong = (whole != expected) & (changed == expected)
    else:
        digits = _digits(tf.as_dtype(expected.dtype))
        wide = _wide_of(expected)
        whole, expected, changed = (value.astype(wide) for value in (whole, expected, changed))
        with np.errstate(all="ignore"):
            grown = np.abs(changed - expected)
            grown = np.max(grown, initial=0.0, where=np.isfinite(grown))
            size = np.abs(expected) + added
            wrong = np.abs(whole - expected) > growth * (grown + digits * size)
            # What the change of last digits makes infinite, or not a number, is not compared.
            wrong |= (np.isfinite(whole) != np.isfinite(expected)) & np.isfinite(changed)
    if not np.any(wrong):
        return ""
    first = np.argwhere(np.atleast_1d(wrong))[0]
    pair = (np.atleast_1d(value)[tuple(first)] for value in (whole, expected))
    return "{} at {}, not {}".format(*(next(pair), first.tolist(), next(pair)))


class Validation:
    """Computes the operations of a planned step whole, in the graph that calls its stages.

    Args:
        program: The step, whose stages are not yet called.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.planner = program, program.planner
        self._wholes: dict[int, Any] = {}  # tensor id -> the whole tensor; `None` if unknown
        self._compared: list[_Compared] = []
        self._names: dict[str, Any] = {}
        self._sizes: dict[Any, Any] = {}
        self._nears: dict[int, tuple[Any, Any]] = {}
        self._handles: dict[int, Any] = {}  # variables of the step by the ids of their handles
        self._state: dict[int, Any] = {}  # their values, as one device has them
        for key, parts in program.inputs.items():
            handle = self.planner.tensors.get(key)
            if handle is not None and (first := read_variable(handle, parts[0])) is not None:
                self._handles[key] = handle
                self._state[key] = self._variable(handle, parts, first)

    def _variable(self, handle: Any, parts: Sequence[Any], first: Any) -> Any:
        placement = self.planner.placement(handle)
        if not isinstance(placement, Shard):
            return first
        own = [read_variable(handle, part) for part in parts]
        return tf.concat(own, placement.axis)

    def check(self, results: Sequence[Any]) -> Sequence[Any]:
        """Compare all, once the stages are called; returns the results, which wait for that."""
        before = dict(self._state)
        with tf.device(self.program.devices[0]):
            for item in self.planner.items:
                self._walk(item)
            self._compare_variables(before)
            flat = [tensor for one in self._compared for tensor in one.tensors().values()]
            checked = tf.numpy_function(self._run, flat, [], stateful=True)
        with tf.control_dependencies([checked]):
            return tf.nest.map_structure(tf.identity, results)  # type: ignore[no-any-return]

    def _run(self, *values: Any) -> None:
        """Compare the values of all tensors; the first operation that is wrong is an error."""
        given = iter(values)
        for one in self._compared:
            error = one.error({name: np.asarray(next(given)) for name in one.tensors()})
            if error:
                raise ValueError(f"{WRONG} {self._name(one.op)} wrong ({one.placement}): {error}")

    def _name(self, op: Any) -> str:
        if tf.is_tensor(op):
            return f"the variable {op.name}"
        return f"{op.type} of {place_of(self.planner.origin(op), self._names)}"

    def _walk(self, item: Item) -> None:
        op = item.op
        self._names[op.name] = op
        given = [self._given(self.planner.canonical(t)) for t in op.inputs]
        expected = None
        if self._is_computed(item, given):
            expected = self._computed(op, given, self._state)
        else:
            self._forget(given[place] for place in effects_of(op, [False] * len(given))[1])
        changed = expected
        # A sum that was exchanged may have been added in another order than here.
        is_rounded = any(isinstance(placement, Partial) for placement in item.placements)
        if expected and (op.type not in _ELEMENTWISE or is_rounded):
            used = [id(one.handle) for one in given if isinstance(one, Variable)]
            near = {key: self._near(self._state[key]) for key in used}
            changed = self._computed(op, [self._near(one) for one in given], near)
        for at, (output, placement) in enumerate(zip(op.outputs, item.decision.out, strict=True)):
            one = None if expected is None else expected[at]
            self._wholes[id(output)] = one
            parts = self.program.parts(output, item.time)
            is_opaque = output.dtype == tf.variant or isinstance(placement, Opaque)
            if parts is None or is_opaque or _is_fake(op, at):
                continue
            other = None if changed is None else changed[at]
            self._wholes[id(output)] = self._compare(op, placement, parts, one, other)
        if op.type == "ReadVariableOp":  # after a change of which nothing is known
            key = id(self.planner.canonical(op.inputs[0]))
            if self._state.get(key, op) is None:
                self._state[key] = self._wholes[id(op.outputs[0])]

    def _given(self, tensor: Any) -> Any:
        """Return an input of an operation as one device has it; `None` if it is unknown."""
        if id(tensor) in self._handles:
            return Variable(self._handles[id(tensor)])
        if id(tensor) not in self._wholes:
            if tensor.op.type == "Const":
                self._wholes[id(tensor)] = copy_whole(tensor.op, [])[0]
            elif self.planner.time(tensor) == BEFORE:
                parts = self.program.inputs[id(tensor)]
                self._wholes[id(tensor)] = self._joined(parts, self.planner.placement(tensor))
            else:
                self._wholes[id(tensor)] = None
        return self._wholes[id(tensor)]

    def _is_computed(self, item: Item, given: Sequence[Any]) -> bool:
        """Whether an operation may be computed a second time, and what it takes is known."""
        op = item.op
        unknown = any(one is None for one in given) or any(
            self._state[id(one.handle)] is None for one in given if isinstance(one, Variable)
        )
        if unknown or (self.program.draws_by_xla and op.type in DRAWN_BY_XLA):
            return False
        if op.type in _SAY_MORE_OR_LESS:
            return False
        if (
            op.type in ("PartitionedCall", "StatefulPartitionedCall")
            and kernel_of(op) in _OF_REPLICAS
        ):
            return False
        once, _ = self.planner.effects(op)
        variables = [one for one in given if isinstance(one, Variable)]
        return not once or bool(variables)

    def _computed(self, op: Any, given: Sequence[Any], state: dict[int, Any]) -> Any:
        try:
            return run_whole(op, given, state)
        except NotImplementedError:  # it changes a variable in a way of its own
            self._forget(given)
            return None

    def _forget(self, variables: Iterable[Any]) -> None:
        """Let the values of variables be unknown, until the step reads them."""
        for one in variables:
            if isinstance(one, Variable):
                self._state[id(one.handle)] = None

    def _compare(
        self, op: Any, placement: Any, parts: Sequence[Any], expected: Any, changed: Any
    ) -> Any:
        """Let a tensor be compared; returns the whole of it."""
        whole, counts = self._joined(parts, placement), None
        if isinstance(placement, Shard):
            counts = tf.add_n(self._segments(placement.rows))
        growth = _XLA_GROWTH if self.program.jit_compile else _GROWTH
        self._compared.append(
            _Compared(op, placement, parts, whole, expected, changed, counts, growth)
        )
        return whole

    def _near(self, value: Any) -> Any:
        """Return a value whose numbers have other last digits."""
        if not tf.is_tensor(value) or not value.dtype.is_floating:
            return value
        if id(value) not in self._nears:
            steps = tf.random.stateless_uniform(tf.shape(value), [3, 5], 1, 4, tf.int32)
            # All up, so that no sum has the changes of two of its values cancel.
            near = value + tf.abs(value) * _digits(value.dtype) * tf.cast(steps, value.dtype)
            self._nears[id(value)] = (value, near)  # which keeps the first one alive
        return self._nears[id(value)][1]

    def _compare_variables(self, before: dict[int, Any]) -> None:
        calls = [call for stage in self.program.all_stages() for call in stage.calls.values()]
        for key, value in self._state.items():
            if value is None or value is before[key]:
                continue
            handle, parts = self._handles[key], self.program.inputs[key]
            with tf.control_dependencies(calls):
                own = [read_variable(handle, part) for part in parts]
            placement = self.planner.placement(handle)
            self._compare(handle, placement, own, value, self._near(value))

    # Parts and sizes

    def _joined(self, parts: Sequence[Any], placement: Any) -> Any:
        """Return a whole tensor, from what the replicas have of it."""
        if isinstance(placement, Partial):
            if placement.op == "add":
                return tf.add_n(list(parts))
            return reduce_stacked(placement, tf.stack(list(parts)), self._rows_of_replicas)
        if not isinstance(placement, Shard):
            return parts[0]
        axis, segments = placement.axis, self._segments(placement.rows)
        if len(segments) == 1:
            return tf.concat(list(parts), axis)
        blocks = [
            tf.split(part, tf.stack([sizes[at] for sizes in segments]), axis, num=len(segments))
            for at, part in enumerate(parts)
        ]
        return tf.concat([own[at] for at in range(len(segments)) for own in blocks], axis)

    def _segments(self, rows: Rows) -> list[Any]:
        """Return for each segment of rows how many the replicas have of it."""
        return [self._counts(space.root()) * self._size(unit) for space, unit in rows.segments]

    def _rows_of_replicas(self, rows: Rows) -> Any:
        return tf.add_n(self._segments(rows))

    def _counts(self, space: Space) -> Any:
        if space.source is None:
            return self.program.counts[space]
        if space not in self._sizes:
            tensor, axis = space.source
            parts = self.program.parts(tensor, self.planner.time(tensor))
            self._sizes[space] = tf.stack([tf.shape(part)[axis] for part in parts or ()])
        return self._sizes[space]

    def _size(self, size: AnySize) -> Any:
        if isinstance(size, int):
            return tf.constant(size)
        total: Any = tf.constant(0)
        for symbols, factor in size.terms.items():
            term: Any = tf.constant(factor)
            for symbol in symbols:
                term = term * self._symbol(symbol)
            total = total + term
        return total

    def _symbol(self, symbol: Any) -> Any:
        if isinstance(symbol, Space):
            return tf.reduce_sum(self._counts(symbol))
        value = self._given(self.planner.canonical(symbol.tensor))
        if isinstance(symbol, AxisSize):
            return tf.shape(value)[symbol.axis]
        return tf.cast(value if value.shape.rank == 0 else value[symbol.index], "int32")


def _is_fake(op: Any, place: int) -> bool:
    """Whether a branch of a condition returns nothing in the place of a result."""
    if op.type not in CONDITIONS:
        return False
    return any(is_never_used(graph.outputs[place]) for graph in called_graphs(op))


def _digits(dtype: Any) -> float:
    """Return how far apart numbers at 1 are."""
    return 2.0**-7 if dtype == tf.bfloat16 else float(np.finfo(dtype.as_numpy_dtype).eps)
