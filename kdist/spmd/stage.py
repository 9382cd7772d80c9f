"""Write the functions of a planned step: each function does a replica's work of a stage.

`Stage.write_operation` writes an operation from its inputs, which `Stage.read_input` brings into
the forms that the operation wants: the replica's value (`local_value`), the whole tensor
(`whole_value`), rows of it (`slice_rows`), or sizes (`size_vector`). The values of a function are
written where they are first needed, and once.

`program.ProgramStage` is a stage of the step, and gets values of other stages as arguments
(`outer_value` and the methods beside it). `Body` is the body of a loop or condition within a stage.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph as func_graphs
from tensorflow.python.ops import handle_data_util

from .collectives import HOST
from .explanation import find_user_line
from .functions import (
    copy_operation,
    create_like,
    is_sum,
    set_traceback,
    shapes_attribute,
    user_traceback,
    write_sum,
)
from .op_types import DRAWN_BY_XLA, READS, REMOVABLE
from .placements import ListOf, Placement, Replicate, Shard
from .plan import GraphPlan, PlannedOperation
from .redistribute import Conversion, CountOnce, Keep, SliceRows, TakeWhole, WriteSizes
from .rows import Rows
from .sizes import AnySize, AxisSize, BatchAxis, Element, evaluate, key_of
from .tensor_facts import Ref

WRONG_DIVISION = "kdist has divided"
"""The beginning of an error message about an operation that kdist has divided wrongly."""
_LARGEST_SLICED_RANK = 8  # of TensorFlow's `Slice` (2.21)
_numbers = itertools.count()


@dataclass(frozen=True)
class ReplicaIndex:
    """The replica's number."""


UnknownNumber = ReplicaIndex | BatchAxis | AxisSize | Element
"""A number that is known when a step runs; a `BatchAxis` stands for all replicas' row counts."""


class StageGraph(func_graphs.FuncGraph):
    """Graph of a stage; its error messages name lines and layers of the user's program."""

    _traceback: Any = None  # Traceback of the operation of the step that is being written.

    @contextlib.contextmanager
    def write_as(self, op: tf.Operation) -> Iterator[None]:
        """Give operations made in the `with` block the scope and traceback of `op` of the step."""
        before, self._traceback = self._traceback, user_traceback(op)
        with self.name_scope(f"{op.name}/"):
            yield
        self._traceback = before

    def _create_op_internal(self, *args: Any, **options: Any) -> Any:
        op = super()._create_op_internal(*args, **options)
        set_traceback(op, self._traceback)
        return op


class Stage:
    """A function that is being written: a stage of a step, or a body in it."""

    # The device of kernels that XLA compiles; `None` for the replica's own device.
    kernel_device: str | None = None
    # Whether XLA compiles the draws of `DRAWN_BY_XLA`: its numbers differ from TensorFlow's.
    draws_by_xla = False

    def __init__(self, plan: GraphPlan, name: str) -> None:
        self.plan = plan
        self.graph = StageGraph(f"kdist_{name}_{next(_numbers)}")
        self.inputs: dict[Any, tf.Tensor] = {}  # Placeholders, by the values that they stand for.
        self.values: dict[Ref, tf.Tensor] = {}  # The replica's values of tensors of the step.
        # For each operation of the step, the operation of this function.
        self.written: dict[tf.Operation, tf.Operation] = {}
        self._memo: dict[Any, Any] = {}

    # Values of other functions

    def outer_value(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the replica's value of a tensor that another function makes."""
        raise NotImplementedError

    def outer_whole(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return a tensor that was reduced or gathered before this function."""
        raise NotImplementedError

    def outer_number(self, number: UnknownNumber) -> tf.Tensor:
        """Return an unknown number that this function gets from outside."""
        raise NotImplementedError

    def makes_tensor(self, tensor: tf.Tensor) -> bool:
        raise NotImplementedError

    def add_input(
        self,
        key: Any,
        dtype: tf.DType,
        shape: Any,
        like: tf.Tensor | None = None,
        divided_axis: int | None = None,
    ) -> tf.Tensor:
        """Return the placeholder of a value that the function is called with.

        The placeholder stands for the value `key`. `like` is a resource or list of the same type,
        and `divided_axis` the divided axis of a divided variable.
        """
        if key not in self.inputs:
            with self.graph.as_default():
                placeholder = tf.compat.v1.placeholder(dtype, shape)
            if like is not None:
                handle_data_util.copy_handle_data(like, placeholder)
            if divided_axis is not None:
                _forget_size(placeholder, divided_axis)
            self.inputs[key] = placeholder
        return self.inputs[key]

    # Redistribution

    def local_value(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the replica's value of a tensor, as its placement says."""
        tensor = self.plan.resolve_alias(tensor)
        if tensor.ref() not in self.values:
            if tensor.op.type == "Const":
                self.values[tensor.ref()] = self.copy_operation(tensor.op, [])[0]
            elif self.makes_tensor(tensor):
                self.write_operation(self.plan.makers[tensor.ref()])
            else:
                self.values[tensor.ref()] = self.outer_value(tensor)
        return self.values[tensor.ref()]

    def read_input(self, tensor: tf.Tensor, conversion: Conversion) -> tf.Tensor | None:
        """Return a tensor in its wanted form; `None` for sizes that are not read."""
        match conversion:
            case Keep():
                return self.local_value(tensor)
            case WriteSizes():
                return self._write_local_sizes(tensor, conversion)
            case TakeWhole():
                return self.whole_value(tensor)
            case SliceRows():
                key = (tensor.ref(), conversion)
                shard, broadcasts = conversion.shard, conversion.may_broadcast
                return self.make_once(
                    key, lambda: self.slice_rows(self.whole_value(tensor), shard, broadcasts)
                )
            case CountOnce():
                return self.make_once((tensor.ref(), conversion), lambda: self._count_once(tensor))
        raise TypeError(f"unknown conversion {conversion!r}")

    def whole_value(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the whole tensor."""
        placement = self.plan.placement_of(tensor)
        if isinstance(placement, Replicate | ListOf):
            return self.local_value(tensor)
        planned = self.plan.makers.get(tensor.ref())
        key = (tensor.ref(), "whole")
        if planned is not None and planned.decision.reduces_input:
            return self.make_once(key, lambda: self._reshape_whole(planned, tensor))
        return self.make_once(key, lambda: self.outer_whole(tensor))

    def _reshape_whole(self, planned: PlannedOperation, tensor: tf.Tensor) -> tf.Tensor:
        """Return a whole tensor from its reduced source (`Decision.reduces_input`)."""
        inputs = [self.whole_value(source) for source in planned.inputs]
        return self.copy_operation(planned.op, inputs)[tensor.value_index]

    def _count_once(self, tensor: tf.Tensor) -> tf.Tensor:
        whole = self.whole_value(tensor)
        return tf.where(self.replica_index == 0, whole, tf.zeros_like(whole))

    def _write_local_sizes(self, tensor: tf.Tensor, conversion: WriteSizes) -> tf.Tensor | None:
        sizes = self.plan.sizes_in(tensor)
        if not conversion.rows or sizes is None:
            return None
        dims = sizes.tolist() if sizes.ndim else [sizes.item()]
        return self.size_vector(dims, tensor.dtype, dict(conversion.rows))

    def slice_rows(self, tensor: tf.Tensor, shard: Shard, may_broadcast: bool = False) -> tf.Tensor:
        """Return the replica's rows of a whole tensor.

        If `may_broadcast`, a single row is taken whole. The step fails if the tensor's axis does
        not have the size of the batch.
        """
        axis, rows = shard.axis, shard.rows
        size = tf.shape(tensor)[axis]
        total = self.write_size(rows.total, tf.int32)
        # Without rows, TensorFlow may compute a wrong size for a -1 in a shape.
        right = tf.logical_or(tf.equal(size, total), tf.equal(total, 0))
        if may_broadcast:
            is_single = tf.equal(size, 1)
            right = tf.logical_or(right, is_single)
        message = f"axis {axis} of {tensor.name} has to have the rows of the batch, {rows}"
        with tf.control_dependencies([tf.debugging.Assert(right, [message, size, total])]):
            tensor = tf.identity(tensor)
        parts: list[tf.Tensor] = []
        for count, begin in self.global_row_blocks(rows, tf.int32):
            if may_broadcast:
                begin = tf.where(is_single, 0, begin)
                count = tf.where(is_single, 0 if parts else 1, count)
            parts.append(rows_from(tensor, axis, begin, count))
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis)

    def make_once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the value of a key; `make` is called once in this function."""
        if key not in self._memo:
            with self.graph.as_default():
                self._memo[key] = make()
        return self._memo[key]

    # Operations

    def write_operation(self, planned: PlannedOperation) -> None:
        """Write an operation, and set the replica's values of its results."""
        op, decision = planned.op, planned.decision
        with self.graph.write_as(op):
            pairs = zip(planned.inputs, planned.conversions, strict=True)
            inputs = [self.read_input(tensor, conversion) for tensor, conversion in pairs]
            with self.graph.as_default(), tf.control_dependencies(self.find_controls(planned)):
                write = decision.write
                outputs = (
                    self.copy_operation(op, inputs) if write is None else write(self, op, inputs)
                )
            if outputs and write is not None and hasattr(outputs[0], "op"):
                self.written[op] = outputs[0].op
            for output, value, placement in zip(
                op.outputs, outputs, decision.output_placements, strict=True
            ):
                shape = local_shape(self.plan.shape_of(output), placement)
                self._set_shape(op, value, shape, placement)
                self.values[output.ref()] = value

    def _set_shape(
        self, op: tf.Operation, value: tf.Tensor, shape: tf.TensorShape, placement: Placement
    ) -> None:
        """Set the static shape of a replica's value; raise an error if the value does not fit."""
        if not value.shape.is_compatible_with(shape):
            raise ValueError(
                f"{WRONG_DIVISION} {op.type} of {find_user_line(op)} wrongly ({placement}): a"
                f" replica has the shape {value.shape}, not {shape}: please report this"
            )
        if not value.shape.is_fully_defined():
            value.set_shape(shape)

    def find_controls(self, planned: PlannedOperation) -> list[tf.Operation]:
        """Return the operations of this function that have to run before a planned operation."""
        return [self.written[op] for op in planned.controls if op in self.written]

    def copy_operation(self, op: tf.Operation, inputs: Sequence[Any]) -> list[tf.Tensor]:
        """Write a copy of an operation with new inputs; return its results."""
        if self.draws_by_xla and op.type in DRAWN_BY_XLA:
            return self._draw_by_xla(op, inputs)
        with self.graph.as_default():
            write = write_sum if is_sum(op) else copy_operation
            copy = write(self.graph, op, inputs)
        self.written[op] = copy
        for output, copied in zip(op.outputs, copy.outputs, strict=True):
            # Lists are left out: the local shapes of their elements may differ.
            if output.dtype == tf.resource:
                handle_data_util.copy_handle_data(output, copied)
        return list(copy.outputs)

    def _draw_by_xla(self, op: tf.Operation, inputs: Sequence[Any]) -> list[tf.Tensor]:
        """Let XLA compile a draw, even in a stage that XLA does not compile."""

        def draw(*given: tf.Tensor) -> Any:
            # TensorFlow would fold a call without an effect, by its own kernel, if all inputs are
            # constants.
            tf.raw_ops.Assert(condition=True, data=[0])
            return copy_operation(tf.compat.v1.get_default_graph(), op, given).outputs

        call = tf.function(draw, autograph=False, jit_compile=True)
        with self.graph.as_default(), tf.device(self.kernel_device):
            return list(call(*inputs))

    def write_kernel(self, op: tf.Operation, inputs: Sequence[Any]) -> list[tf.Tensor]:
        """Write the operations of the kernel that an operation calls."""
        graph = self.plan.step.bodies.graph_of(op, op.get_attr("f").name, op.inputs)
        values = {inner.ref(): value for inner, value in zip(graph.inputs, inputs, strict=True)}
        for inner in graph.get_operations():
            if inner.type != "Placeholder":
                outputs = self.copy_operation(
                    inner, [values[tensor.ref()] for tensor in inner.inputs]
                )
                values |= zip((tensor.ref() for tensor in inner.outputs), outputs, strict=True)
        return [values[tensor.ref()] for tensor in graph.outputs]

    # Sizes

    @property
    def on_cpus(self) -> bool:
        """Whether all replicas are on CPUs."""
        return self.kernel_device is not None

    @contextlib.contextmanager
    def on_host(self) -> Iterator[None]:
        """Place the operations of this block on the host: kernels of GPUs need sizes there."""
        with tf.device(None if self.on_cpus else HOST), tf.name_scope("on_host"):
            yield

    @property
    def replica_index(self) -> tf.Tensor:
        return self.outer_number(ReplicaIndex())

    def row_counts(self, batch_axis: BatchAxis) -> tf.Tensor:
        """Return the numbers of rows of all replicas."""
        return self.outer_number(batch_axis.root())

    def local_count(self, rows: Rows, dtype: tf.DType) -> tf.Tensor:
        return functools.reduce(operator.add, (count for count, _ in self.row_blocks(rows, dtype)))

    def row_blocks(self, rows: Rows, dtype: tf.DType) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Return, for each segment of rows, the replica's number of rows and its first row."""
        dtype = tf.as_dtype(dtype)
        return [
            self._row_block(batch_axis.root(), unit, dtype) for batch_axis, unit in rows.segments
        ]

    def global_row_blocks(self, rows: Rows, dtype: tf.DType) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Return `row_blocks`, with the first row's place among the rows of all segments."""
        before: Any = tf.constant(0, dtype)
        found = []
        for (count, first), segment in zip(
            self.row_blocks(rows, dtype), rows.segments, strict=True
        ):
            found.append((count, before + first))
            if len(rows.segments) > 1:
                before = before + self.write_size(Rows((segment,)).total, dtype)
        return found

    def _row_block(
        self, batch_axis: BatchAxis, unit: AnySize, dtype: tf.DType
    ) -> tuple[tf.Tensor, tf.Tensor]:
        def make() -> tuple[tf.Tensor, tf.Tensor]:
            counts = self._cast_row_counts(batch_axis, dtype)
            count = counts[self.replica_index]
            first = tf.reduce_sum(counts[: self.replica_index])
            times = self.write_size(unit, dtype)
            return tf.cast(count, dtype) * times, tf.cast(first, dtype) * times

        block: tuple[tf.Tensor, tf.Tensor]
        block = self.make_once(("block", batch_axis, key_of(unit), dtype), make)
        return block

    def _cast_row_counts(self, batch_axis: BatchAxis, dtype: tf.DType) -> tf.Tensor:
        """Return the numbers of rows; for a float type as floats, which a GPU copies once."""
        counts = self.row_counts(batch_axis)
        if not dtype.is_floating or dtype.size < 4:
            return counts
        return self.make_once(("counts", batch_axis, dtype), lambda: tf.cast(counts, dtype))

    def write_size(self, size: AnySize, dtype: tf.DType) -> tf.Tensor:
        """Return a size of the whole batch as a scalar."""
        dtype = tf.as_dtype(dtype)
        if isinstance(size, int):
            return tf.constant(size, dtype)

        return self.make_once(
            ("size", key_of(size), dtype),
            lambda: evaluate(
                size,
                lambda symbol: self._write_symbol(symbol, dtype),
                lambda number: tf.constant(number, dtype),
            ),
        )

    def _write_symbol(self, symbol: Any, dtype: tf.DType) -> tf.Tensor:
        def make() -> tf.Tensor:
            if isinstance(symbol, BatchAxis):
                return tf.cast(tf.reduce_sum(self._cast_row_counts(symbol, dtype)), dtype)
            return tf.cast(self.unknown_number(symbol), dtype)

        return self.make_once(("symbol", symbol, dtype), make)

    def unknown_number(self, number: UnknownNumber) -> tf.Tensor:
        """Return an unknown number, from a tensor that this function makes or from outside."""
        if isinstance(number, AxisSize | Element):
            tensor = self.plan.resolve_alias(number.tensor)
            if self.makes_tensor(tensor) or tensor.op.type == "Const":
                return self.read_number(number)
        return self.outer_number(number)

    def read_number(self, symbol: AxisSize | Element) -> tf.Tensor:
        """Return the value of a symbol from a tensor that this function has."""
        return self.make_once(
            ("read", symbol), lambda: read_symbol(symbol, self.local_value(symbol.tensor))
        )

    def size_vector(
        self, sizes: Sequence[AnySize], dtype: tf.DType, rows: dict[int, Rows] | None = None
    ) -> tf.Tensor:
        """Return sizes as a vector; at the indices in `rows`, the replica's own numbers of rows."""
        rows = rows or {}
        dtype = tf.as_dtype(dtype)
        key = ("vector", tuple(map(key_of, sizes)), tuple(rows.items()), dtype)

        def make() -> tf.Tensor:
            if not rows and all(isinstance(size, int) for size in sizes):
                return tf.constant(list(sizes), dtype)
            parts = [
                self.local_count(rows[index], dtype)
                if index in rows
                else self.write_size(size, dtype)
                for index, size in enumerate(sizes)
            ]
            return tf.stack(parts)

        return self.make_once(key, make)

    # Functions within this function

    def _pass_numbers(self, bodies: Sequence[Body], **attributes: Any) -> list[tf.Tensor]:
        """Finish bodies; return the unknown numbers that a call passes to each of them."""
        numbers = list(dict.fromkeys(number for body in bodies for number in body.numbers))
        for body in bodies:
            body.finish_function(numbers, **attributes)
        return [*map(self.unknown_number, numbers)]

    def call_loop(
        self, op: tf.Operation, inputs: Sequence[tf.Tensor], body: Body, test: Body
    ) -> list[tf.Tensor]:
        """Write a loop with a body and a condition."""
        args = [*inputs, *self._pass_numbers([body, test])]
        attributes = dict(op.node_def.attr)
        attributes.update(body=body.reference, cond=test.reference)
        attributes.pop("_num_original_outputs", None)
        attributes["T"] = _types_attribute(args)
        shapes = [placeholder.shape for placeholder in list(body.inputs.values())[: len(inputs)]]
        shapes += [number.shape for number in args[len(inputs) :]]
        attributes["output_shapes"] = shapes_attribute(shapes)
        call = self.create_operation(op, args, [arg.dtype for arg in args], attributes)
        for output, initial in zip(call.outputs, inputs, strict=False):
            handle_data_util.copy_handle_data(initial, output)
        return list(call.outputs[: len(inputs)])

    def call_condition(
        self, op: tf.Operation, inputs: Sequence[tf.Tensor], branches: Sequence[Body]
    ) -> list[tf.Tensor]:
        """Write a condition with its branches."""
        predicate, *given = inputs
        args = [*given, *self._pass_numbers(branches)]
        attributes = dict(op.node_def.attr)
        references = [branch.reference for branch in branches]
        if "branches" in attributes:
            functions = attr_value_pb2.AttrValue.ListValue(
                func=[function.func for function in references]
            )
            attributes["branches"] = attr_value_pb2.AttrValue(list=functions)
        else:
            attributes.update(zip(("then_branch", "else_branch"), references, strict=True))
        attributes["Tin"] = _types_attribute(args)
        attributes["output_shapes"] = shapes_attribute([tf.TensorShape(None) for _ in op.outputs])
        dtypes = [output.dtype for output in op.outputs]
        call = self.create_operation(op, [predicate, *args], dtypes, attributes)
        for output, new in zip(op.outputs, call.outputs, strict=True):
            if output.dtype == tf.resource:
                handle_data_util.copy_handle_data(output, new)
        return list(call.outputs)

    def call_xla(
        self, op: tf.Operation, inputs: Sequence[tf.Tensor], body: Body
    ) -> list[tf.Tensor]:
        """Write a call of a function that XLA has to compile."""
        compiled = attr_value_pb2.AttrValue(b=True)
        args = [*inputs, *self._pass_numbers([body], _XlaMustCompile=compiled)]
        attributes = dict(op.node_def.attr)
        attributes.update(f=body.reference, Tin=_types_attribute(args), _XlaMustCompile=compiled)
        call = self.create_operation(op, args, [output.dtype for output in op.outputs], attributes)
        return list(call.outputs)

    def create_operation(
        self, op: tf.Operation, args: Sequence[Any], dtypes: Sequence[tf.DType], attributes: Any
    ) -> tf.Operation:
        """Write an operation of the type of `op`, with new attributes."""
        call = create_like(self.graph, op, args, dtypes, attributes)
        self.written[op] = call
        return call


class Body(Stage):
    """The body of a loop, condition or call; a body has no collectives.

    `parent` is the function that contains the body. `given` has, for each input of the traced body,
    the tensor of the whole batch and the replica's value. With `returns_numbers`, the body returns
    the unknown numbers, as a loop's body does.

    Attributes:
        numbers: Placeholders of the unknown numbers, which follow the body's inputs in a call.
        reference: An attribute that names the finished function.
    """

    def __init__(
        self,
        parent: Stage,
        plan: GraphPlan,
        graph: tf.Graph,
        given: Sequence[tuple[tf.Tensor, tf.Tensor]],
        *,
        is_compiled: bool = False,
        returns_numbers: bool = False,
    ) -> None:
        super().__init__(plan, "body")
        self.returns_numbers = returns_numbers
        self.graph.outer_graph = parent.graph
        self.parent, self.traced = parent, graph
        self.kernel_device = parent.kernel_device
        self.draws_by_xla = parent.draws_by_xla or is_compiled
        self.numbers: dict[UnknownNumber, tf.Tensor] = {}
        self.outputs: list[tf.Tensor] = []
        self.reference: Any = None
        self._checks: list[tf.Operation] = []
        for index, (inner, (whole, own)) in enumerate(zip(graph.inputs, given, strict=True)):
            shape = local_shape(parent.plan.shape_of(whole), plan.placement_of(inner))
            self.values[inner.ref()] = self.add_input(index, whole.dtype, shape, own)

    def makes_tensor(self, tensor: tf.Tensor) -> bool:
        return self.plan.has_tensor(tensor)

    def outer_number(self, number: UnknownNumber) -> tf.Tensor:
        if number not in self.numbers:
            shape = [None] if isinstance(number, BatchAxis) else []
            with self.graph.as_default():
                self.numbers[number] = tf.compat.v1.placeholder("int32", shape)
        return self.numbers[number]

    def _check_assumptions(self) -> None:
        """Check that batches have equally many rows, where the plan of this body assumes it."""
        for assumption in self.plan.own_assumptions:
            message = f"two batches of different sizes meet in {find_user_line(assumption.op)}"
            counts = self.row_counts(assumption.batch_axis), self.row_counts(assumption.other)
            with self.graph.as_default():
                same = tf.reduce_all(tf.equal(*counts))
                self._checks.append(tf.debugging.Assert(same, [message, *counts]))

    def find_controls(self, planned: PlannedOperation) -> list[tf.Operation]:
        return [*self._checks, *super().find_controls(planned)]

    def write_body(self, conversions: Sequence[Conversion | None]) -> Body:
        """Write all operations and the results; return this body.

        A result is converted to the form that all bodies return; the conversion is `None` for a
        result that is the input at the same index.
        """
        self._check_assumptions()
        needed = live_planned(self.plan, self.traced.outputs)
        with self.plan.hold_assumptions():
            for planned in self.plan.operations:
                if planned in needed and planned.op not in self.written:
                    self.write_operation(planned)
            inputs = list(self.inputs.values())
            pairs = zip(self.traced.outputs, conversions, strict=True)
            self.outputs = [
                inputs[index]
                if conversion is None
                else self.read_input(self.plan.resolve_alias(output), conversion)
                for index, (output, conversion) in enumerate(pairs)
            ]
        return self

    def finish_function(self, numbers: Sequence[UnknownNumber], **attributes: Any) -> None:
        """End the function; calls pass these unknown numbers after the inputs."""
        added = [self.outer_number(number) for number in numbers]
        outputs = [*self.outputs, *(added if self.returns_numbers else [])]
        self.reference = end_function(
            self, [*self.inputs.values(), *added], outputs, self.parent.graph, **attributes
        )


def end_function(
    stage: Stage,
    inputs: Sequence[tf.Tensor],
    outputs: Sequence[tf.Tensor],
    outer: tf.Graph,
    **attributes: Any,
) -> Any:
    """Make a TensorFlow function of a stage, in an outer graph; return a reference to it."""
    graph = stage.graph
    graph.inputs, graph.outputs = list(inputs), list(outputs)
    # Reads are included: an operation that changes a variable later waits for the reads.
    graph.control_outputs = [
        op for op in graph.get_operations() if op.op_def.is_stateful and op.type not in REMOVABLE
    ]
    function = atomic_function.from_func_graph(graph.name, graph, attributes)
    outer._add_function_recursive(function)
    return attr_value_pb2.AttrValue(func=attr_value_pb2.NameAttrList(name=graph.name))


def live_planned(plan: GraphPlan, outputs: Sequence[tf.Tensor]) -> set[PlannedOperation]:
    """Return the operations that have effects, or that outputs need."""
    needed = {plan.resolve_alias(tensor).ref() for tensor in outputs}
    controls: set[tf.Operation] = set()
    live = set()
    for planned in reversed(plan.operations):
        op = planned.op
        has_effect = op.op_def.is_stateful and op.type not in REMOVABLE | READS
        is_needed = op in controls or any(output.ref() in needed for output in op.outputs)
        if not (has_effect or is_needed):
            continue
        live.add(planned)
        controls.update(planned.controls)
        needed |= {
            tensor.ref()
            for tensor, conversion in zip(planned.inputs, planned.conversions, strict=True)
            if not isinstance(conversion, WriteSizes)
        }
    return live


def read_symbol(symbol: AxisSize | Element, value: tf.Tensor) -> tf.Tensor:
    """Return the value of a symbol from the value of its tensor."""
    if isinstance(symbol, AxisSize):
        return tf.shape(value)[symbol.axis]
    return tf.cast(value if value.shape.rank == 0 else value[symbol.index], "int32")


def rows_from(tensor: tf.Tensor, axis: int, begin: Any, count: Any) -> tf.Tensor:
    """Return `count` rows of a tensor along an axis, beginning with row `begin`."""
    rank = tensor.shape.rank
    if rank is None or rank > _LARGEST_SLICED_RANK:
        return tf.gather(tensor, tf.range(begin, begin + count), axis=axis)
    starts = tf.stack([begin if index == axis else 0 for index in range(rank)])
    counts = tf.stack([count if index == axis else -1 for index in range(rank)])
    return tf.slice(tensor, starts, counts)


def _forget_size(handle: tf.Tensor, axis: int) -> None:
    """Set the size of an axis to unknown in the data of a handle, which refers to a part."""
    data = handle_data_util.get_resource_handle_data(handle)
    data.shape_and_type[0].shape.dim[axis].size = -1
    handle_data_util.set_handle_data(handle, data)


def local_shape(shape: tf.TensorShape, placement: Placement) -> tf.TensorShape:
    """Return the shape of a replica's value of a tensor, as far as it is known."""
    if not isinstance(placement, Shard) or shape.rank is None:
        return shape
    sizes = [None if axis == placement.axis else size for axis, size in enumerate(shape)]
    return tf.TensorShape(sizes)


def _types_attribute(tensors: Sequence[tf.Tensor]) -> Any:
    types = [tensor.dtype.as_datatype_enum for tensor in tensors]
    return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(type=types))
