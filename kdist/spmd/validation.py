"""Validate a planned step: every operation is also computed whole, and compared with its parts.

With `KDIST_VERIFY=1`, each operation of the step itself is computed from whole inputs, as on a
single device. The inputs are put together from the replicas' parts: rows are joined, sums added up.
The results have to equal the replicas' results. So the error names the operation that is wrong, and
rounding errors do not grow from operation to operation. A body of a loop or condition is compared
by its results. An operation that acts outside of the program runs once, and its results are
trusted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from .effects import effects_of
from .explanation import find_user_line
from .functionalize import Variable, compute_whole, copy_whole, read_variable, variables_in
from .functions import called_graphs
from .op_types import CONDITIONS, DRAWN_BY_XLA, NOT_VALIDATED
from .placements import PARTIAL, Opaque, Partial, Replicate, Shard
from .plan import PlannedOperation, is_fake
from .program import Program
from .rows import Rows
from .rules.elementwise import BROADCASTING, SAME_SHAPES, UNARY
from .sizes import BatchAxis, evaluate
from .stage import WRONG_DIVISION, read_symbol
from .tensor_facts import INPUTS, Ref

_GROWTH, _XLA_GROWTH = 64.0, 2.0**14
"""Largest allowed difference, as a multiple of the effect of changed last digits of the inputs.

XLA computes functions such as exponentials less exactly.
"""
# These operations add up no rounding errors.
_ELEMENTWISE = {*UNARY, *BROADCASTING, *SAME_SHAPES} - {"AddN"}


def is_validated() -> bool:
    """Whether steps that are traced now are validated."""
    return os.environ.get("KDIST_VERIFY") == "1"


@contextlib.contextmanager
def validate_steps() -> Iterator[None]:
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
    """Tensors that are compared when the step runs, for a single tensor of the step.

    Attributes:
        op: The operation that makes the tensor; the handle of a variable for its value after the
            step.
        growth: The largest allowed difference, as a multiple of the difference between `expected`
            and `changed` and a last digit of `expected` together.
        tensors: By name: `parts`, the replicas' values; `whole`, the parts put together;
            `expected`, the result of the operation, computed whole, unless it is trusted;
            `changed`, the value of `expected` for inputs with changed last digits; `counts`, the
            planned number of rows of each replica.
    """

    op: tf.Operation
    placement: Any
    growth: float
    tensors: dict[str, Any]

    def find_error(self, found: dict[str, Any]) -> str:
        """Return the error in the values of the tensors; an empty text if they are right."""
        placement, parts = self.placement, found["parts"]
        whole, expected = found["whole"], found.get("expected")
        if isinstance(placement, Shard):
            sizes = [part.shape[placement.axis] for part in parts]
            if sizes != found["counts"].tolist():
                return f"the replicas have {sizes} rows, not {found['counts'].tolist()}"
            rows = np.moveaxis(whole, placement.axis, 0)
            equal = np.broadcast_to(rows[:1], rows.shape) if len(rows) else rows
            if placement.uniform and (
                error := _describe_difference(rows, equal, None, self.growth)
            ):
                return f"its rows differ, but the plan says that all rows are equal: {error}"
        shapes = [_shape_without_axis(part.shape, placement) for part in parts]
        if len({*shapes, _shape_without_axis(whole.shape, placement)}) > 1:
            return f"the replicas have shapes {shapes}, the whole has {whole.shape}"
        if isinstance(placement, Replicate) and not all(_are_equal(parts[0], p) for p in parts[1:]):
            return "the replicas' values differ, but each should be the whole tensor"
        if expected is None:
            return ""
        if (expected.shape, expected.dtype) != (whole.shape, whole.dtype):
            return f"{whole.dtype}{whole.shape}, not {expected.dtype}{expected.shape}"
        is_sum = placement == PARTIAL and whole.dtype.kind not in "biu"
        added = sum(abs(part.astype(_wide_of(part))) for part in parts) if is_sum else 0.0
        return _describe_difference(whole, expected, found.get("changed"), self.growth, added)


def _shape_without_axis(shape: tuple[int, ...], placement: Any) -> tuple[int, ...]:
    axis = placement.axis if isinstance(placement, Shard) else -1
    return tuple(size for index, size in enumerate(shape) if index != axis)


def _are_equal(mine: Any, other: Any) -> bool:
    return bool(np.all((mine == other) | ((mine != mine) & (other != other))))


def _wide_of(value: Any) -> Any:
    """Return the type for comparisons of floating-point and complex values."""
    return np.complex128 if value.dtype.kind == "c" else np.float64


def _describe_difference(
    whole: Any, expected: Any, changed: Any, growth: float, added: Any = 0.0
) -> str:
    """Return a text about the first difference that rounding does not explain, or an empty text.

    `added` is the sum of the absolute values of the replicas' terms of a sum, which may be larger
    than the sum.
    """
    if _are_equal(whole, expected):
        return ""
    if changed is None or changed.shape != expected.shape:
        changed = expected
    if expected.dtype.kind in "OSUbiu":
        wrong = (whole != expected) & (changed == expected)
    else:
        digits = _spacing_of(tf.as_dtype(expected.dtype))
        wide = _wide_of(expected)
        whole, expected, changed = (value.astype(wide) for value in (whole, expected, changed))
        with np.errstate(all="ignore"):
            grown = np.abs(changed - expected)
            grown = np.max(grown, initial=0.0, where=np.isfinite(grown))
            size = np.abs(expected) + added
            wrong = np.abs(whole - expected) > growth * (grown + digits * size)
            # Values that become infinite or NaN by the change of last digits are left out.
            wrong |= (np.isfinite(whole) != np.isfinite(expected)) & np.isfinite(changed)
    if not np.any(wrong):
        return ""
    first = np.argwhere(np.atleast_1d(wrong))[0]
    pair = (np.atleast_1d(value)[tuple(first)] for value in (whole, expected))
    return "{} at {}, not {}".format(*(next(pair), first.tolist(), next(pair)))


class Validation:
    """Computes the operations of a planned step whole, in the graph that calls its stages.

    The `program` is the step, before its stages are called.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.plan = program, program.plan
        program.exports_all = True
        self._wholes: dict[Ref, Any] = {}  # Whole tensors; `None` for an unknown tensor.
        self._compared: list[_Compared] = []
        self._names: dict[str, Any] = {}
        self._sizes: dict[Any, Any] = {}
        self._nears: dict[Ref, tf.Tensor] = {}
        self._handles: dict[Ref, tf.Tensor] = {}  # Handles of the step's variables.
        self._state: dict[Ref, Any] = {}  # The variables' whole values, as on a single device.
        for key, parts in program.inputs.items():
            handle = key.deref()
            if (
                self.plan.has_tensor(handle)
                and (first := read_variable(handle, parts[0])) is not None
            ):
                self._handles[key] = handle
                self._state[key] = self._join_variable(handle, parts, first)

    def _join_variable(self, handle: Any, parts: Sequence[Any], first: Any) -> Any:
        placement = self.plan.placement_of(handle)
        if not isinstance(placement, Shard):
            return first
        own = [read_variable(handle, part) for part in parts]
        return tf.concat(own, placement.axis)

    def compare_all(self, results: Sequence[Any]) -> Sequence[Any]:
        """Compare all tensors after the calls of the stages; return the results after the check."""
        before = dict(self._state)
        with tf.device(self.program.devices[0]):
            for planned in self.plan.operations:
                self._validate_operation(planned)
            self._compare_variables(before)
            flat = tf.nest.flatten([compared.tensors for compared in self._compared])
            checked = tf.numpy_function(self._compare_values, flat, [], stateful=True)
        with tf.control_dependencies([checked]):
            return tf.nest.map_structure(tf.identity, results)  # type: ignore[no-any-return]

    def _compare_values(self, *values: Any) -> None:
        """Compare the values of all tensors; raise an error for the first wrong operation."""
        tensors = [compared.tensors for compared in self._compared]
        found = tf.nest.pack_sequence_as(tensors, [*map(np.asarray, values)])
        for compared, arrays in zip(self._compared, found, strict=True):
            if error := compared.find_error(arrays):
                raise ValueError(
                    f"{WRONG_DIVISION} {self._describe_operation(compared.op)} wrongly"
                    f" ({compared.placement}): {error}"
                )

    def _describe_operation(self, op: tf.Operation) -> str:
        if tf.is_tensor(op):
            return f"the variable {op.name}"
        return f"{op.type} of {find_user_line(self.plan.find_origin(op), self._names)}"

    def _validate_operation(self, planned: PlannedOperation) -> None:
        op = planned.op
        self._names[op.name] = op
        given = [self._whole_input(self.plan.resolve_alias(t)) for t in op.inputs]
        expected = None
        if self._is_computed(op, given):
            expected = self._compute_whole(op, given, self._state)
        else:
            self._forget_values(given[index] for index in effects_of(op, [False] * len(given))[1])
        changed = expected
        placements = planned.decision.output_placements
        results = list(zip(op.outputs, placements, strict=True))
        # The replicas may have added up an exchanged sum in a different order. Rounding errors of
        # a list are not compared, and grow until an operation takes the list's elements.
        is_rounded = any(isinstance(placement, Partial) for placement in planned.placements)
        is_rounded |= any(_is_opaque(output, placement) for output, placement in results)
        if expected and (op.type not in _ELEMENTWISE or is_rounded):
            used = [variable.key for variable in variables_in(given)]
            near = {key: self._change_last_digits(self._state[key]) for key in used}
            changed = self._compute_whole(
                op, [self._change_last_digits(value) for value in given], near
            )
        if changed and op.type == "Cast":
            changed = [_change_undefined(given[0], changed[0])]
        for number, (output, placement) in enumerate(results):
            whole = None if expected is None else expected[number]
            near_whole = None if changed is None else changed[number]
            self._wholes[output.ref()] = whole
            if _is_opaque(output, placement):
                if whole is not None:
                    self._nears[whole.ref()] = near_whole
                continue
            parts = self.program.local_values(output, planned.stage)
            if parts is None or _is_fake(op, number) or _is_undefined(op, number):
                continue
            self._wholes[output.ref()] = self._compare_parts(
                op, placement, parts, whole, near_whole
            )
        # After a change that could not be computed, a read makes the variable's value known again.
        if op.type == "ReadVariableOp":
            key = self.plan.resolve_alias(op.inputs[0]).ref()
            if self._state.get(key, op) is None:
                self._state[key] = self._wholes[op.outputs[0].ref()]

    def _whole_input(self, tensor: tf.Tensor) -> Any:
        """Return an input of an operation as a single device has it; `None` if it is unknown."""
        if tensor.ref() in self._handles:
            return Variable(self._handles[tensor.ref()])
        if tensor.ref() not in self._wholes:
            if tensor.op.type == "Const":
                self._wholes[tensor.ref()] = copy_whole(tensor.op, [])[0]
            elif self.plan.stage_of(tensor) == INPUTS:
                parts = self.program.inputs[tensor.ref()]
                self._wholes[tensor.ref()] = self._join_parts(parts, self.plan.placement_of(tensor))
            else:
                self._wholes[tensor.ref()] = None
        return self._wholes[tensor.ref()]

    def _is_computed(self, op: tf.Operation, given: Sequence[Any]) -> bool:
        """Whether an operation may be computed a second time, and its inputs are known."""
        variables = variables_in(given)
        unknown = any(value is None for value in given) or any(
            self._state[variable.key] is None for variable in variables
        )
        if unknown or (self.program.draws_by_xla and op.type in DRAWN_BY_XLA):
            return False
        if op.type in NOT_VALIDATED:
            return False
        return not self.plan.find_effects(op)[0] or bool(variables)

    def _compute_whole(self, op: tf.Operation, given: Sequence[Any], state: dict[Ref, Any]) -> Any:
        try:
            return compute_whole(op, given, state)
        except NotImplementedError:  # The operation has no counterpart for a variable's value.
            self._forget_values(given)
            return None

    def _forget_values(self, variables: Iterable[Any]) -> None:
        """Mark the values of variables as unknown, until the step reads the variables."""
        for variable in variables_in(variables):
            self._state[variable.key] = None

    def _compare_parts(
        self, op: tf.Operation, placement: Any, parts: Sequence[Any], expected: Any, changed: Any
    ) -> Any:
        """Add a tensor to the compared tensors; return the whole tensor."""
        whole, counts = self._join_parts(parts, placement), None
        if isinstance(placement, Shard):
            counts = self._count_replica_rows(placement.rows)
        growth = _XLA_GROWTH if self.program.jit_compile else _GROWTH
        tensors = {"parts": list(parts), "whole": whole, "expected": expected}
        tensors |= {"changed": changed, "counts": counts}
        known = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        self._compared.append(_Compared(op, placement, growth, known))
        return whole

    def _change_last_digits(self, value: Any) -> Any:
        if not tf.is_tensor(value):
            return value
        if value.ref() not in self._nears:
            if not value.dtype.is_floating:
                return value
            steps = tf.random.stateless_uniform(tf.shape(value), [3, 5], 1, 4, tf.int32)
            # All values are raised, so that changes of two values of a sum do not cancel.
            near = value + tf.abs(value) * _spacing_of(value.dtype) * tf.cast(steps, value.dtype)
            self._nears[value.ref()] = near
        return self._nears[value.ref()]

    def _compare_variables(self, before: dict[Ref, Any]) -> None:
        calls = [call for stage in self.program.all_stages() for call in stage.calls.values()]
        for key, value in self._state.items():
            if value is None or value is before[key]:
                continue
            handle, parts = self._handles[key], self.program.inputs[key]
            with tf.control_dependencies(calls):
                own = [read_variable(handle, part) for part in parts]
            placement = self.plan.placement_of(handle)
            self._compare_parts(handle, placement, own, value, self._change_last_digits(value))

    # Parts and sizes

    def _join_parts(self, parts: Sequence[Any], placement: Any) -> Any:
        if isinstance(placement, Partial):
            if placement == PARTIAL:
                return tf.add_n(list(parts))
            return placement.reduction.combine(tf.stack(list(parts)), self._count_replica_rows)
        if not isinstance(placement, Shard):
            return parts[0]
        axis, segments = placement.axis, self._count_segment_rows(placement.rows)
        if len(segments) == 1:
            return tf.concat(list(parts), axis)
        blocks = [
            tf.split(part, tf.stack([sizes[number] for sizes in segments]), axis, num=len(segments))
            for number, part in enumerate(parts)
        ]
        return tf.concat([own[number] for number in range(len(segments)) for own in blocks], axis)

    def _count_segment_rows(self, rows: Rows) -> list[Any]:
        """Return, for each segment of rows, the replicas' numbers of rows."""
        return [
            self._count_rows(batch_axis.root()) * evaluate(unit, self._write_symbol, tf.constant)
            for batch_axis, unit in rows.segments
        ]

    def _count_replica_rows(self, rows: Rows) -> Any:
        return tf.add_n(self._count_segment_rows(rows))

    def _count_rows(self, batch_axis: BatchAxis) -> Any:
        if batch_axis.source is None:
            return self.program.counts[batch_axis]
        if batch_axis not in self._sizes:
            tensor, axis = batch_axis.source
            parts = self.program.local_values(tensor, self.plan.stage_of(tensor))
            self._sizes[batch_axis] = tf.stack([tf.shape(part)[axis] for part in parts or ()])
        return self._sizes[batch_axis]

    def _write_symbol(self, symbol: Any) -> Any:
        if isinstance(symbol, BatchAxis):
            return tf.reduce_sum(self._count_rows(symbol))
        return read_symbol(symbol, self._whole_input(self.plan.resolve_alias(symbol.tensor)))


def _is_opaque(tensor: tf.Tensor, placement: Any) -> bool:
    """Whether the replicas' values of a tensor cannot be put together, as of a list."""
    return tensor.dtype == tf.variant or isinstance(placement, Opaque)


def _is_fake(op: tf.Operation, index: int) -> bool:
    """Whether a result of a condition is missing in a branch."""
    if op.type not in CONDITIONS:
        return False
    return any(is_fake(graph.outputs[index]) for graph in called_graphs(op))


def _is_undefined(op: tf.Operation, index: int) -> bool:
    """Whether a result is not computed, such as vectors if only singular values were asked for."""
    names = {"Svd": "compute_uv", "SelfAdjointEigV2": "compute_v"}
    return index > 0 and op.type in names and not op.get_attr(names[op.type])


def _change_undefined(value: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """Change the results of a cast for floats outside of the integer type's range.

    These results depend on the number of elements and on the processor.
    """
    if not value.dtype.is_floating or not result.dtype.is_integer:
        return result
    number = tf.cast(value, tf.float64)
    is_defined = (number > float(result.dtype.min) - 1) & (number < float(result.dtype.max) + 1)
    return tf.where(is_defined, result, tf.bitwise.invert(result))


def _spacing_of(dtype: Any) -> float:
    """Return the distance of 1 to the next larger number of a type."""
    return 2.0**-7 if dtype == tf.bfloat16 else float(np.finfo(dtype.as_numpy_dtype).eps)
