"""The program of a planned step: stages called on every device, and exchanges between them.

`Program.write_step` writes each planned operation into the function of its stage (`ProgramStage`),
then goes through the rounds in order (`_call_stages`): it writes the round's exchange
(`_write_exchange`), and calls the round's functions (`_call_stage`).

The arguments of a function are found while the function is written: a value that another function
makes becomes a result there and an argument here (`ProgramStage.outer_value`). So no function is
called before all are written. `stage.Stage` writes the operations themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager.polymorphic_function.attributes import NO_INLINE
from tensorflow.python.framework.auto_control_deps_utils import READ_ONLY_RESOURCE_INPUTS_ATTR
from tensorflow.python.ops import gen_functional_ops

from .collectives import Collectives, ExchangedRows
from .placements import PARTIAL, Placement, Shard
from .plan import GraphPlan, PlannedExchange, PlannedOperation, bytes_of
from .redistribute import Conversion, SliceRows, TakeRowsOfSum, TakeWeight
from .rows import Rows
from .sizes import BatchAxis
from .stage import ReplicaIndex, Stage, UnknownNumber, end_function, live_planned, local_shape
from .tensor_facts import INPUTS, Ref, StageNumber

COPIES, PARTS = "copies", "parts"
"""Variables that a part of a stage changes: with a copy on each device, or divided over shards."""

# Arguments of stages.


@dataclass(frozen=True)
class StepInput:
    """The replica's value of an input of the step."""

    tensor: Ref


@dataclass(frozen=True)
class Result:
    """A result of an earlier stage."""

    stage: StageNumber
    index: int


Argument = StepInput | ReplicaIndex | BatchAxis | Result | PlannedExchange
"""A `BatchAxis` stands for its row counts on all replicas, a `PlannedExchange` for its result."""


class Program:
    """Writes a planned step into the graph that calls it.

    In this class, a replica is a part of a batch: a stage is called for each shard of a device in
    turn, and `collectives.devices` has the device of each shard.

    Args:
        plan: The plan.
        inputs: The replicas' values of each traced input.
        collectives: The exchanges of values.
        counts: The numbers of rows of all replicas, by batch axis.
        jit_compile: Whether XLA compiles the stages, as far as it can.
        draws_by_xla: Whether XLA compiles random draws even without `jit_compile`.
    """

    def __init__(
        self,
        plan: GraphPlan,
        inputs: dict[Ref, Sequence[tf.Tensor]],
        collectives: Collectives,
        counts: dict[BatchAxis, tf.Tensor],
        *,
        jit_compile: bool = False,
        draws_by_xla: bool = False,
    ) -> None:
        self.plan, self.devices, self.inputs = plan, collectives.devices, inputs
        self.collectives, self.jit_compile = collectives, jit_compile
        self.draws_by_xla = jit_compile or draws_by_xla
        self.stages: dict[StageNumber, ProgramStage] = {}
        self.used: set[PlannedExchange] = set()  # Exchanges whose results a stage reads.
        self.counts = counts
        self.exchange_rounds = 0
        self.exports_all = False
        self._called: dict[StageNumber, list[list[tf.Tensor]]] = {}  # Results on each replica.
        self._order = {ref: index for index, ref in enumerate(plan.makers)}
        self._exchanged: dict[Argument, list[tf.Tensor]] = {}  # Values of all replicas.
        # For each sum, the terms that are still to add.
        self._sums: dict[PlannedExchange, list[tf.Tensor]] = {}
        self._ends: dict[StageNumber, list[tf.Operation]] = {}  # Operations that follow a stage.

    def stage_at(self, number: StageNumber) -> ProgramStage:
        """Return the function of a stage."""
        if number not in self.stages:
            self.stages[number] = ProgramStage(self, number)
        return self.stages[number]

    def _stage_for(self, planned: PlannedOperation) -> ProgramStage:
        """Return the function that an operation is written into."""
        stage = self.stage_at(planned.stage)
        if not planned.changes_variables or not self.collectives.in_fixed_order:
            return stage
        changed = PARTS if any(map(self.plan.is_divided, planned.inputs)) else COPIES
        if changed not in stage.writers:
            stage.writers[changed] = ProgramStage(self, planned.stage, changed)
        return stage.writers[changed]

    def write_step(self, results: Sequence[tuple[tf.Tensor, bool]]) -> list[Any]:
        """Write the step; return for each result the whole tensor, or the replicas' rows.

        `results` pairs a tensor of the traced step with whether the tensor stays divided, if it is
        divided along its first axis.
        """
        plan = self.plan
        live = live_planned(plan, [tensor for tensor, _ in results])
        # A stage may have written an operation before its turn, as an input of another operation.
        for planned in plan.operations:
            if planned in live and planned.stage != INPUTS:
                stage = self._stage_for(planned)
                if planned.op not in stage.written:
                    stage.write_operation(planned)
        # The last function only returns whole results, after all exchanges.
        exchanges = [exchange.stage for exchange in plan.exchanges.values()]
        last = max([INPUTS, *self.stages, *exchanges, *plan.counted.values()])
        final = self.stage_at(last.next_round)
        kept: list[tuple[bool, tf.Tensor]] = []
        for output, keeps_rows in results:
            tensor = plan.resolve_alias(output)
            if keeps_rows and stays_divided(plan.placement_of(tensor)):
                kept.append((True, tensor))
            else:
                kept.append((False, final.whole_value(tensor)))
        return self._call_stages(final, kept)

    def exchanged_tensors(self) -> list[tf.Tensor]:
        """Return the tensors that are exchanged and read."""
        exchanges = self.plan.exchanges.values()
        return [exchange.tensor for exchange in exchanges if exchange in self.used]

    # Calls

    def _call_stages(
        self, final: ProgramStage, kept: Sequence[tuple[bool, tf.Tensor]]
    ) -> list[Any]:
        """Call all functions, in order, and return the results."""
        plan = self.plan
        results = [
            self._export_tensor(tensor)
            if stays
            else Result(final.number, final.export_result(tensor))
            for stays, tensor in kept
        ]
        # An exchanged tensor has to become a result of its stage before the stage is called. To
        # write the tensor may need results of earlier stages, so the last round comes first.
        exchanges = [exchange.stage for exchange in plan.all_exchanges()]
        rounds = sorted({*exchanges, *plan.counted.values()}, reverse=True)
        sent = {number: self._collect_exchanges(number) for number in rounds}
        if self.exports_all:
            self._export_all_tensors()
        outer = tf.compat.v1.get_default_graph()
        for number in sorted({*self.stages, *sent}):
            self._write_exchange(sent.get(number, []))
            stage = self.stages.get(number)
            if stage is not None and (stage.outputs or stage.has_effects):
                self._called[number] = self._call_stage(stage, outer)
            for writer in () if stage is None else stage.writers.values():
                self._call_stage(writer, outer)
        return [
            [*self._replica_values(result)] if stays else self._replica_values(result)[0]
            for (stays, _), result in zip(kept, results, strict=True)
        ]

    def _export_tensor(self, tensor: tf.Tensor) -> StepInput | Result:
        """Make a tensor a result of its stage; return the key of the replicas' values."""
        number = self.plan.stage_of(tensor)
        if number == INPUTS:
            return StepInput(tensor.ref())
        stage = self.stage_at(number)
        return Result(number, stage.export_result(stage.local_value(tensor)))

    def _call_stage(self, stage: ProgramStage, outer: tf.Graph) -> list[list[tf.Tensor]]:
        """Call a stage for its replicas; return the results on every replica."""
        # First come the sums that this stage waits for. Sums that only later stages need are added
        # up while the next stages run, once they fill a bucket.
        self._sum_in_buckets([exchange for exchange in self._sums if exchange in stage.inputs])
        collected = sum(bytes_of(parts[0]) for parts in self._sums.values())
        if collected >= self.collectives.bucket_bytes:
            self._sum_in_buckets(list(self._sums))
        function = end_function(
            stage, [*stage.inputs.values()], stage.outputs, outer, **stage.function_attributes()
        )
        outputs = []
        values = [self._replica_values(key) for key in stage.inputs]
        for replica in stage.replicas:
            args = [value[replica] for value in values]
            waits = [
                call for earlier in stage.after for call in earlier.calls_before(stage, replica)
            ]
            with tf.device(self.devices[replica]), tf.control_dependencies(waits):
                call = gen_functional_ops.stateful_partitioned_call(
                    args,
                    [output.dtype for output in stage.outputs],
                    f=function.func,
                    name=stage.graph.name,
                )
            results = [] if isinstance(call, tf.Operation) else list(call)
            stage.add_call(replica, results[0].op if results else call)
            for result, inner in zip(results, stage.outputs, strict=True):
                if inner.dtype not in (tf.resource, tf.variant):
                    result.set_shape(inner.shape)
            outputs.append(results)
        return outputs * len(self.devices) if stage.runs_once else outputs

    def _replica_values(self, argument: Argument) -> Sequence[tf.Tensor]:
        match argument:
            case StepInput():
                return self.inputs[argument.tensor]
            case ReplicaIndex():
                return [tf.constant(place) for place in self.collectives.places]
            case BatchAxis(source=None):
                return [self.counts[argument]] * len(self.devices)
            case Result():
                return [results[argument.index] for results in self._called[argument.stage]]
        return self._exchanged[argument]

    # Validation

    def all_stages(self) -> list[ProgramStage]:
        """Return all functions."""
        return [part for stage in self.stages.values() for part in stage.with_writers()]

    def _export_all_tensors(self) -> None:
        for planned in self.plan.operations:
            if planned.stage not in self.stages:
                continue
            stage = self.stages[planned.stage]
            for output in planned.op.outputs:
                if output.ref() in stage.values and output.dtype not in (tf.resource, tf.variant):
                    stage.export_result(stage.values[output.ref()])

    def local_values(self, tensor: tf.Tensor, number: StageNumber) -> list[tf.Tensor] | None:
        """Return the replicas' values of a tensor, once all stages are called."""
        stage = self.stages.get(number)
        own = stage.values.get(self.plan.resolve_alias(tensor).ref()) if stage else None
        index = stage.result_indices.get(own.ref()) if stage and own is not None else None
        return None if index is None else [*self._replica_values(Result(number, index))]

    # Exchanges

    def _collect_exchanges(self, number: StageNumber) -> list[PlannedExchange | BatchAxis]:
        """Return the exchanges at a stage number; make their tensors results of their stages."""
        sent: list[PlannedExchange | BatchAxis] = []
        for exchange in self.plan.all_exchanges():
            if exchange.stage == number and exchange in self.used:
                self._export_tensor(exchange.tensor)
                sent.append(exchange)
        for batch_axis, stage in self.plan.counted.items():
            if stage == number:
                self._export_row_count(batch_axis)
                sent.append(batch_axis)
        return sent

    def _export_row_count(self, batch_axis: BatchAxis) -> Result:
        """Make a batch axis's number of rows a result of the stage that makes the rows."""
        tensor, axis = batch_axis.source
        stage = self.stage_at(self.plan.stage_of(tensor))
        count = stage.make_once(
            ("count", batch_axis), lambda: tf.shape(stage.local_value(tensor))[axis]
        )
        return Result(stage.number, stage.export_result(count))

    def _write_exchange(self, sent: Sequence[PlannedExchange | BatchAxis]) -> None:
        """Write an exchange; only collect the terms of sums, which are added up later."""
        self.exchange_rounds += bool(sent)
        scattered: dict[Argument, ExchangedRows] = {}
        gathered: dict[Argument, ExchangedRows] = {}
        stacked: dict[Argument, list[tf.Tensor]] = {}
        for source in sent:
            if isinstance(source, BatchAxis):
                stacked[source] = [*self._replica_values(self._export_row_count(source))]
                continue
            parts = self._sent_values(source)
            placement = self.plan.placement_of(source.tensor)
            shape = self.plan.shape_of(source.tensor)
            if source.shard is not None:
                scattered[source] = self._exchanged_rows(parts, shape, source.shard)
            elif isinstance(placement, Shard):
                # Rows of a divided variable have known numbers: they are gathered in buckets.
                if placement.rows.known_parts is not None and shape.is_fully_defined():
                    gathered[source] = self._exchanged_rows(parts, shape, placement)
                else:
                    self._exchanged[source] = self.collectives.gather(parts, placement.axis)
            elif placement == PARTIAL:
                self._sums[source] = parts
            else:
                stacked[source] = parts
        stacks = self.collectives.stack_all(list(stacked.values()))
        own = self.collectives.scatter_sums(list(scattered.values()))
        whole = self.collectives.gather_all(list(gathered.values()))
        keys, values = (*stacked, *scattered, *gathered), (*stacks, *own, *whole)
        self._exchanged |= dict(zip(keys, values, strict=True))

    def _exchanged_rows(
        self, parts: Sequence[tf.Tensor], shape: tf.TensorShape, shard: Shard
    ) -> ExchangedRows:
        sizes: Any = shard.rows.known_parts
        if sizes is None:
            ((batch_axis, unit),) = shard.rows.segments
            sizes = self.counts[batch_axis.root()] * unit
        return ExchangedRows(parts, shape.as_list(), shard.axis, sizes)

    def _sent_values(self, exchange: PlannedExchange) -> list[tf.Tensor]:
        """Return the replicas' values of a tensor that is exchanged.

        The gather of a divided weight waits for the stage before the last one: so the next weights
        are gathered while a stage runs, and no replica has the whole weights of more than two
        stages.
        """
        parts = [*self._replica_values(self._export_tensor(exchange.tensor))]
        if exchange.is_weight:
            for index, end in enumerate(self._find_ends_before(exchange.stage.round - 1)):
                with tf.device(self.devices[index]), tf.control_dependencies([end]):
                    parts[index] = tf.identity(parts[index])
        return parts

    def _find_ends_before(self, exchange_round: int) -> list[tf.Operation]:
        """Return, for each replica, an operation that follows the last stage before a round."""
        before = [
            number
            for number in self._called
            if number.on_every_replica and number.round < exchange_round and self._called[number][0]
        ]
        if not before:
            return []
        number = max(before)
        if number not in self._ends:
            outputs = self.stages[number].outputs
            last = max(range(len(outputs)), key=lambda index: outputs[index].op._id)
            self._ends[number] = ends = []
            for device, results in zip(self.devices, self._called[number], strict=True):
                with tf.device(device):
                    # Once TensorFlow has inlined a call, only its results tell that it has run.
                    ends.append(tf.identity(results[last]).op)
        return self._ends[number]

    def _sum_in_buckets(self, exchanges: Sequence[PlannedExchange]) -> None:
        """Write sums over replicas, in buckets, in the order of the step."""
        # Inputs of the step are not in `_order`: they come first.
        exchanges = sorted(exchanges, key=lambda sum_: self._order.get(sum_.tensor.ref(), -1))
        sums = self.collectives.sum_all([self._sums.pop(exchange) for exchange in exchanges])
        self._exchanged |= dict(zip(exchanges, sums, strict=True))


def stays_divided(placement: Placement) -> bool:
    """Whether a result of the step stays divided: it has a batch's rows, along its first axis."""
    return (
        isinstance(placement, Shard)
        and placement.axis == 0
        and len(placement.rows.segments) == 1
        and placement.rows.is_batch
    )


class ProgramStage(Stage):
    """A stage of a program: runs on every replica, or once.

    If the shards of a device share variables, a part of the stage (`changed`) changes the variables
    after the stage has run for all shards: the part `COPIES` runs once on each device, and the part
    `PARTS`, for divided variables, for each shard. `None` is the stage itself.

    Attributes:
        writers: The parts of this stage that change variables.
        calls: The calls of the function, by replica.
        after: Stages that have to run before.
    """

    def __init__(self, program: Program, number: StageNumber, changed: str | None = None) -> None:
        kind = f"_writes_{changed}" if changed else "" if number.on_every_replica else "_once"
        super().__init__(program.plan, f"stage_{number.round}{kind}")
        self.program, self.number, self.changed = program, number, changed
        if all("CPU" in device for device in program.devices):
            # XLA compiles a kernel once for every device, and all CPU devices are one processor.
            self.kernel_device = program.devices[0]
        self.runs_once = not number.on_every_replica
        self.draws_by_xla = program.draws_by_xla
        self.writers: dict[str, ProgramStage] = {}
        self.outputs: list[tf.Tensor] = []
        self.calls: dict[int, tf.Operation] = {}
        self.after: dict[ProgramStage, None] = {}
        self.result_indices: dict[Ref, int] = {}

    # Calls

    @property
    def replicas(self) -> Sequence[int]:
        """The replicas that the function is called for."""
        devices = self.program.devices
        if self.runs_once:
            return [0]
        if self.changed == COPIES:
            return [devices.index(device) for device in dict.fromkeys(devices)]
        return range(len(devices))

    def with_writers(self) -> list[ProgramStage]:
        """Return the stage and its parts that change variables."""
        return [self, *self.writers.values()]

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the stage.

        XLA cannot compile a stage that passes on a list, as loops make for their gradients.
        """
        passed = [*self.inputs.values(), *self.outputs]
        has_lists = any(tensor.dtype == tf.variant for tensor in passed)
        return self.program.jit_compile and not self.runs_once and not has_lists

    def function_attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        if self.program.collectives.in_fixed_order:
            attributes[NO_INLINE] = True  # the same kernels on any number of devices
        if self.is_compiled:
            attributes["_XlaMustCompile"] = True
        return attributes

    def add_call(self, replica: int, call: tf.Operation) -> None:
        """Add the function's call for a replica."""
        self.calls[replica] = call
        in_fixed_order = self.program.collectives.in_fixed_order
        if in_fixed_order and not self.runs_once and not self.changed:
            _set_read_only(call)
        if self.is_compiled:
            call._set_attr("_XlaMustCompile", attr_value_pb2.AttrValue(b=True))

    def calls_before(self, stage: ProgramStage, replica: int) -> list[tf.Operation]:
        """Return the calls that a later stage waits for.

        If both stages run on every replica, these are the calls on the same device. Otherwise the
        later stage waits for all calls.
        """
        devices = self.program.devices
        return [
            call
            for own, call in self.calls.items()
            if self.runs_once or stage.runs_once or devices[own] == devices[replica]
        ]

    @property
    def has_effects(self) -> bool:
        """Whether the stage has to run, even if no stage needs its results."""
        return any(
            op.op_def.is_stateful and op.type != "Placeholder" for op in self.graph.get_operations()
        )

    def export_result(self, tensor: tf.Tensor) -> int:
        """Make a tensor a result of the function; return its index."""
        if tensor.ref() not in self.result_indices:
            self.result_indices[tensor.ref()] = len(self.outputs)
            self.outputs.append(tensor)
        return self.result_indices[tensor.ref()]

    # Values of other functions

    def makes_tensor(self, tensor: tf.Tensor) -> bool:
        return self.plan.stage_of(tensor) == self.number and not self.changed

    def _take_result(self, source: ProgramStage, value: tf.Tensor) -> tf.Tensor:
        key = Result(source.number, source.export_result(value))
        return self.add_input(key, value.dtype, value.shape, value)

    def outer_value(self, tensor: tf.Tensor) -> tf.Tensor:
        number = self.plan.stage_of(tensor)
        if number != INPUTS:
            source = self.program.stage_at(number)
            return self._take_result(source, source.local_value(tensor))
        placement, dtype = self.plan.placement_of(tensor), tensor.dtype
        like = tensor if dtype in (tf.resource, tf.variant) else None
        is_part = dtype == tf.resource and isinstance(placement, Shard)
        axis = placement.axis if is_part else None  # type: ignore[attr-defined]
        shape = local_shape(self.plan.shape_of(tensor), placement)
        return self.add_input(StepInput(tensor.ref()), dtype, shape, like, axis)

    def outer_number(self, number: UnknownNumber) -> tf.Tensor:
        if isinstance(number, ReplicaIndex):
            if self.runs_once:
                return self.make_once(number, lambda: tf.constant(0))
            return self.add_input(number, tf.int32, [])
        if isinstance(number, BatchAxis):
            return self.add_input(number, tf.int32, [self.program.collectives.replicas])
        stage = self.plan.stage_of(number.tensor)
        if stage in (INPUTS, self.number):
            return self.read_number(number)
        source = self.program.stage_at(stage)
        return self._take_result(source, source.read_number(number))

    def outer_whole(self, tensor: tf.Tensor) -> tf.Tensor:
        placement: Any = self.plan.placement_of(tensor)
        exchange = self.plan.exchanges[tensor.ref()]
        if isinstance(placement, Shard) or placement == PARTIAL:
            whole = self._add_exchanged_input(exchange, self.plan.shape_of(tensor))
            is_ordered = placement == PARTIAL or len(placement.rows.segments) == 1
            return whole if is_ordered else self._restore_order(whole, placement)
        count = self.program.collectives.replicas
        known = None if tensor.shape.rank is None else [count, *tensor.shape]
        stacked = self._add_exchanged_input(exchange, known)
        reduced: tf.Tensor = placement.reduction.combine(stacked, self.rows_of_replicas)
        return reduced

    def outer_weight(self, tensor: tf.Tensor, exchange_round: int) -> tf.Tensor:
        exchange = self.plan.weights[exchange_round][tensor.ref()]
        return self._add_exchanged_input(exchange, self.plan.shape_of(tensor))

    def read_input(self, tensor: tf.Tensor, conversion: Conversion) -> tf.Tensor | None:
        match conversion:
            case TakeWeight():
                return self.outer_weight(tensor, conversion.round)
            case TakeRowsOfSum():
                exchange = self.plan.exchanges[tensor.ref()]
                if exchange.shard is None:  # An operation needs the whole sum.
                    return super().read_input(tensor, SliceRows(conversion.shard))
                shape = local_shape(self.plan.shape_of(tensor), exchange.shard)
                return self._add_exchanged_input(exchange, shape)
        return super().read_input(tensor, conversion)

    def _add_exchanged_input(self, exchange: PlannedExchange, shape: Any) -> tf.Tensor:
        self.program.used.add(exchange)
        return self.add_input(exchange, exchange.tensor.dtype, shape)

    def rows_of_replicas(self, rows: Rows) -> tf.Tensor:
        """Return the replicas' numbers of rows, a vector.

        For a single segment, the numbers are not multiplied by the segment's unit.
        """
        if len(rows.segments) == 1:
            return self.row_counts(rows.segments[0][0].root())
        return tf.add_n(self._segment_rows(rows))

    def _segment_rows(self, rows: Rows) -> list[tf.Tensor]:
        """Return, for each segment of rows, the replicas' numbers of rows."""
        return [
            self.row_counts(batch_axis.root()) * self.write_size(unit, "int32")
            for batch_axis, unit in rows.segments
        ]

    def _restore_order(self, gathered: tf.Tensor, placement: Shard) -> tf.Tensor:
        """Bring the replicas' blocks of several segments into the order of the whole batch."""
        replicas, segments = self.program.collectives.replicas, len(placement.rows.segments)
        sizes = tf.reshape(tf.stack(self._segment_rows(placement.rows), 1), [-1])
        # The gathered blocks are in the order of replicas, and of segments within a replica.
        blocks = tf.split(gathered, sizes, placement.axis, num=replicas * segments)
        order = [block for segment in range(segments) for block in blocks[segment::segments]]
        return tf.ensure_shape(tf.concat(order, placement.axis), gathered.shape)

    # Order

    def find_controls(self, planned: PlannedOperation) -> list[tf.Operation]:
        if self.changed:  # Variables are changed after all reads.
            self.after[self.program.stage_at(self.number)] = None
        # Within a function, the operation waits for operations; otherwise, call waits for call.
        earlier = [stage for number, stage in self.program.stages.items() if number < self.number]
        before = [part for stage in earlier for part in stage.with_writers()]
        controls = []
        for op in planned.controls:
            if op in self.written:
                controls.append(self.written[op])
            else:
                self.after |= dict.fromkeys(stage for stage in before if op in stage.written)
        return controls


def _set_read_only(call: tf.Operation) -> None:
    """Let a call run beside calls that read the same variables."""
    resources = [index for index, tensor in enumerate(call.inputs) if tensor.dtype == tf.resource]
    value = attr_value_pb2.AttrValue.ListValue(i=resources)
    call._set_attr(READ_ONLY_RESOURCE_INPUTS_ATTR, attr_value_pb2.AttrValue(list=value))
