"""The partitioned step: functions called on every device, and exchanges between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager.polymorphic_function.attributes import NO_INLINE
from tensorflow.python.framework.auto_control_deps_utils import READ_ONLY_RESOURCE_INPUTS_ATTR
from tensorflow.python.ops import gen_functional_ops

from .collectives import Collectives, ExchangedRows
from .placements import PARTIAL, Partial, Placement, Rows, Shard
from .plan import BEFORE, Item, Planner
from .sizes import Space
from .stage import Stage, end_function, live_items, local_shape


class Exchange(NamedTuple):
    """A value that is exchanged between stages.

    Attributes:
        key: Of the stage's input that gets it.
        how: `"sum"`, `"scatter"` for a sum of which each replica gets its rows, `"stack"` or
            `"gather"`.
        axis: Along which rows are gathered or scattered; 0 for what is not.
        made: When the value is made; `BEFORE` for an input of the step.
        place: Among the results of that stage; the id of an input of the step.
        sizes: The number of rows of each replica, for what is scattered, or gathered and of a
            variable.
        shape: Of the whole tensor, for the same.
    """

    key: Any
    how: str
    axis: int
    made: int
    place: int
    sizes: tuple[int, ...] = ()
    shape: Any = None


class Program:
    """Writes a planned step into the graph that calls it.

    A replica stands here for a part of a batch: shards of one device are called one by one, and
    `collectives.devices` names that device for each of them.

    Args:
        planner: The plan.
        inputs: What each replica has, its part or the whole, by the id of the traced input.
        collectives: How values are exchanged.
        counts: The numbers of rows of all replicas, by space.
        jit_compile: Whether XLA compiles the stages, as far as it can.
        draws_by_xla: Whether it compiles their draws in any case.
    """

    def __init__(
        self,
        planner: Planner,
        inputs: dict[int, Sequence[Any]],
        collectives: Collectives,
        counts: dict[Space, Any],
        *,
        jit_compile: bool = False,
        draws_by_xla: bool = False,
    ) -> None:
        self.planner, self.devices, self.inputs = planner, collectives.devices, inputs
        self.collectives, self.jit_compile = collectives, jit_compile
        self.draws_by_xla = jit_compile or draws_by_xla
        self.stages: dict[int, ProgramStage] = {}
        self.used: set[int] = set()  # ids of tensors that are exchanged
        self.counts = counts
        self.rounds = 0
        self.exports_all = False
        self._called: dict[int, list[Any]] = {}  # the results of a stage on each replica
        self._order = {key: place for place, key in enumerate(planner.item_of)}
        self._exchanged: dict[Any, list[Any]] = {}  # key of an input -> values of all replicas
        self._sums: dict[Any, list[Any]] = {}  # key -> terms of a sum that no stage has needed yet

    def stage(self, time: int) -> ProgramStage:
        """Return the function of a stage."""
        if time not in self.stages:
            self.stages[time] = ProgramStage(self, time)
        return self.stages[time]

    def _stage_of(self, item: Item) -> ProgramStage:
        """Return the function that has an operation."""
        stage = self.stage(item.time)
        if not item.writes or not self.collectives.in_fixed_order:
            return stage
        if stage.writer is None:
            stage.writer = ProgramStage(self, item.time, writes=True)
        return stage.writer

    def write(self, results: Sequence[tuple[Any, bool]]) -> list[Any]:
        """Write the step.

        Args:
            results: Tensors of the traced step, and for each of them whether it stays divided if it
                is so along its first axis.

        Returns:
            For each output the whole tensor; or, if it stays divided, what each replica has.
        """
        planner = self.planner
        live = live_items(planner, [tensor for tensor, _ in results])
        for item in planner.items:
            if item in live and item.time != BEFORE:
                stage = self._stage_of(item)
                if item.op not in stage.operations:
                    stage.emit(item)
        last = max([*self.stages, *planner.exchanges, *planner.counted, -1]) + 1
        final = self.stage(last + last % 2)  # runs once
        kept: list[tuple[bool, Any]] = []
        for output, keeps in results:
            canonical = planner.canonical(output)
            placement = planner.placement(canonical)
            if keeps and stays(placement):
                kept.append((True, canonical))
            else:
                kept.append((False, final.replicated(canonical, placement)))
        return self._call(final, kept)

    def exchanged(self) -> list[Any]:
        """Return the tensors that are exchanged; those that nothing needs are not."""
        return [
            tensor
            for tensors in self.planner.exchanges.values()
            for key, tensor in tensors.items()
            if key in self.used
        ]

    # Calls

    def _call(self, final: ProgramStage, kept: Sequence[tuple[bool, Any]]) -> list[Any]:
        """Call all functions, in order, and return the results."""
        planner = self.planner
        rows_out = {
            id(t): self.stage(planner.time(t)).export(self.stage(planner.time(t)).value(t))
            for is_rows, t in kept
            if is_rows and planner.time(t) != BEFORE
        }
        results_at = [None if is_rows else final.export(value) for is_rows, value in kept]
        # What an exchange takes has to be a result of the stages before.
        sources = {}
        for time in sorted({*planner.exchanges, *planner.counted}, reverse=True):
            sources[time] = self._sources(time)
        if self.exports_all:
            self._export_all()
        outer = tf.compat.v1.get_default_graph()
        called = self._called
        times = sorted({*self.stages, *sources})
        for time in times:
            if time in sources:
                self._write_exchange(sources[time])
            stage = self.stages.get(time)
            if stage is not None and (stage.outputs or stage.has_effects):
                called[time] = self._call_stage(stage, outer)
            if stage is not None and stage.writer is not None:
                self._call_stage(stage.writer, outer)
        results: list[Any] = []
        for (is_rows, value), at in zip(kept, results_at, strict=True):
            if not is_rows:
                results.append(called[final.time][0][at])
            elif planner.time(value) == BEFORE:
                results.append(list(self.inputs[id(value)]))
            else:
                place = rows_out[id(value)]
                results.append([outputs[place] for outputs in called[planner.time(value)]])
        return results

    def _call_stage(self, stage: ProgramStage, outer: Any) -> list[Any]:
        # Sums that this stage waits for come before any that only a later one needs.
        self._add_up([key for key in stage.inputs if key in self._sums])
        self._add_up_full_bucket()
        attributes: dict[str, Any] = {}
        if self.collectives.in_fixed_order:
            attributes[NO_INLINE] = True  # the same kernels on any number of devices
        # XLA can neither take nor return lists, as loops keep for their gradients.
        passed = [*stage.inputs.values(), *stage.outputs]
        has_lists = any(tensor.dtype == tf.variant for tensor in passed)
        if self.jit_compile and not stage.runs_once and not has_lists:
            attributes["_XlaMustCompile"] = True
        stage.graph.inputs = list(stage.inputs.values())
        function = end_function(stage, stage.outputs, outer, **attributes)
        outputs = []
        for replica in stage.replicas:
            args = [self._argument(key, replica) for key in stage.inputs]
            waits = [
                call for earlier in stage.after for call in earlier.calls_before(stage, replica)
            ]
            with tf.device(self.devices[replica]), tf.control_dependencies(waits):
                call = gen_functional_ops.stateful_partitioned_call(
                    args,
                    [t.dtype for t in stage.outputs],
                    f=function.func,
                    name=stage.graph.name,
                )
            made = [] if isinstance(call, tf.Operation) else list(call)
            stage.calls[replica] = made[0].op if made else call
            if self.collectives.in_fixed_order and not stage.runs_once and not stage.writes:
                _read_only(stage.calls[replica])
            if "_XlaMustCompile" in attributes:
                stage.calls[replica]._set_attr("_XlaMustCompile", _true())
            outputs.append(made)
        for made in outputs:
            for tensor, inner in zip(made, stage.outputs, strict=True):
                if inner.dtype.name not in ("resource", "variant"):
                    tensor.set_shape(inner.shape)
        return outputs if not stage.runs_once else outputs * len(self.devices)

    def _argument(self, key: Any, replica: int) -> Any:
        kind, what = key
        if kind == "input":
            return self.inputs[what][replica]
        if kind == "index":
            return tf.constant(self.collectives.places[replica])
        if kind == "counts":
            return self.counts[what] if what.source is None else self._exchanged[key][replica]
        if kind == "result":
            time, at = what
            return self._called[time][replica][at]
        return self._exchanged[key][replica]

    # Validation

    def all_stages(self) -> list[ProgramStage]:
        """Return all functions."""
        writers = [stage.writer for stage in self.stages.values() if stage.writer is not None]
        return [*self.stages.values(), *writers]

    def _export_all(self) -> None:
        for item in self.planner.items:
            if item.time not in self.stages:
                continue
            stage = self.stages[item.time]
            for output in item.op.outputs:
                if id(output) in stage.values and output.dtype not in (tf.resource, tf.variant):
                    stage.export(stage.values[id(output)])

    def parts(self, tensor: Any, time: int) -> list[Any] | None:
        """Return what each replica has of a tensor, once all stages are called."""
        stage = self.stages.get(time)
        place = stage and stage.place_of(tensor)
        return None if place is None else [outputs[place] for outputs in self._called[time]]

    # Exchanges

    def _sources(self, time: int) -> list[Exchange]:
        """Return what is exchanged before a stage."""
        planner = self.planner
        found: list[Exchange] = []
        for key, tensor in planner.exchanges.get(time, {}).items():
            if key not in self.used:
                continue
            placement = planner.placement(tensor)
            sizes: tuple[int, ...] = ()
            if (own := planner.scattered.get(key)) is not None:
                how, axis, sizes = "scatter", own.axis, own.rows.segments[0][0].parts or ()
            elif isinstance(placement, Shard):
                how, axis = "gather", placement.axis
                if not placement.rows.is_batch and tensor.shape.is_fully_defined():
                    ((space, unit), *more) = placement.rows.segments
                    sizes = () if more or unit != 1 else space.parts or ()
            else:
                how, axis = "sum" if placement == PARTIAL else "stack", 0
            made = planner.time(tensor)
            place = id(tensor)
            if made != BEFORE:
                place = self.stage(made).export(self.stage(made).value(tensor))
            found.append(Exchange(("exchange", key), how, axis, made, place, sizes, tensor.shape))
        for space, tensor in planner.counted.get(time, {}).items():
            maker = self.stage(planner.time(tensor))
            with maker.graph.as_default():
                count = tf.shape(maker.value(tensor))[space.source[1]]
            place = maker.export(count)
            found.append(Exchange(("counts", space), "stack", 0, maker.time, place))
        return found

    def _write_exchange(self, sources: Sequence[Exchange]) -> None:
        if sources:
            self.rounds += 1
        scattered: dict[Any, ExchangedRows] = {}
        gathered: dict[Any, ExchangedRows] = {}
        stacked: dict[Any, list[Any]] = {}
        for key, how, axis, made, place, sizes, shape in sources:
            if made == BEFORE:
                parts = list(self.inputs[place])
            else:
                parts = [outputs[place] for outputs in self._called[made]]
            if how == "sum":
                self._sums[key] = parts
            elif how == "stack":
                stacked[key] = parts
            elif how == "scatter":
                scattered[key] = ExchangedRows(parts, shape.as_list(), axis, sizes)
            elif sizes:
                gathered[key] = ExchangedRows(parts, shape.as_list(), axis, sizes)
            else:
                self._exchanged[key] = self.collectives.gather(parts, axis)
        stacks = self.collectives.stacks(list(stacked.values()))
        own = self.collectives.scattered_sums(list(scattered.values()))
        whole = self.collectives.gathered(list(gathered.values()))
        keys, values = (*stacked, *scattered, *gathered), (*stacks, *own, *whole)
        self._exchanged |= dict(zip(keys, values, strict=True))

    def _add_up(self, keys: Sequence[Any]) -> None:
        """Write sums over replicas, in buckets in the order in which the stages make the terms."""
        keys = sorted(keys, key=lambda key: self._order.get(key[1], -1))  # inputs come first
        sums = self.collectives.sums([self._sums.pop(key) for key in keys])
        self._exchanged |= dict(zip(keys, sums, strict=True))

    def _add_up_full_bucket(self) -> None:
        """Add up the gradients of the stages so far while the next ones run, once they are many."""
        if sum(map(_bytes_of, self._sums.values())) >= self.collectives.bucket_bytes:
            self._add_up(list(self._sums))


def _bytes_of(parts: Sequence[Any]) -> int:
    elements = parts[0].shape.num_elements()
    return 0 if elements is None else elements * parts[0].dtype.size


def stays(placement: Placement) -> bool:
    """Whether a result of the step stays divided: it has one batch's rows, along its first axis."""
    return (
        isinstance(placement, Shard) and placement.axis == 0 and len(placement.rows.segments) == 1
    )


def _read_only(call: Any) -> None:
    """Let a call run beside others that read the same variables."""
    resources = [at for at, t in enumerate(call.inputs) if t.dtype == tf.resource]
    value = attr_value_pb2.AttrValue.ListValue(i=resources)
    call._set_attr(READ_ONLY_RESOURCE_INPUTS_ATTR, attr_value_pb2.AttrValue(list=value))


def _true() -> Any:
    return attr_value_pb2.AttrValue(b=True)


class ProgramStage(Stage):
    """A stage of a program: runs on every replica if its time is odd, otherwise once.

    Args:
        program: The program.
        time: The stage's time.
        writes: Whether this is the part of a stage that changes variables, where the shards of a
            device share them: runs once on each device, after the stage has run for all shards.

    Attributes:
        writer: That part of this stage; `None` if there is none.
        calls: The calls of the function, by replica.
        after: Stages that have to run before.
    """

    def __init__(self, program: Program, time: int, *, writes: bool = False) -> None:
        super().__init__(program.planner, f"stage_{time}{'_writes' if writes else ''}")
        self.program, self.time, self.writes = program, time, writes
        if all("CPU" in device for device in program.devices):
            # XLA compiles a kernel once for every device, and these are the same processor.
            self.kernel_device = program.devices[0]
        self.runs_once = time % 2 == 0
        self.draws_by_xla = program.draws_by_xla
        self.writer: ProgramStage | None = None
        self.outputs: list[Any] = []
        self.calls: dict[int, Any] = {}
        self.after: dict[ProgramStage, None] = {}
        self._places: dict[int, int] = {}

    @property
    def replicas(self) -> Sequence[int]:
        """The replicas that the function is called for."""
        devices = self.program.devices
        if self.runs_once:
            return [0]
        if self.writes:
            return [devices.index(device) for device in dict.fromkeys(devices)]
        return range(len(devices))

    def calls_before(self, stage: ProgramStage, replica: int) -> list[Any]:
        """Return the calls that a later stage waits for: those on its device, or all."""
        devices = self.program.devices
        return [
            call
            for own, call in self.calls.items()
            if self.runs_once or stage.runs_once or devices[own] == devices[replica]
        ]

    @property
    def has_effects(self) -> bool:
        """Whether it has to run, even if nothing needs its results."""
        return any(
            op.op_def.is_stateful and op.type != "Placeholder" for op in self.graph.get_operations()
        )

    def export(self, tensor: Any) -> int:
        """Make a tensor a result of the function; return its place."""
        if id(tensor) not in self._places:
            self._places[id(tensor)] = len(self.outputs)
            self.outputs.append(tensor)
        return self._places[id(tensor)]

    def place_of(self, tensor: Any) -> int | None:
        """Return the place of a tensor among the results; `None` if it is not there."""
        tensor = self.planner.canonical(tensor)
        return self._places.get(id(self.values.get(id(tensor))))

    def has(self, tensor: Any) -> bool:
        return self.planner.time(tensor) == self.time and not self.writes

    def _from(self, source: ProgramStage, value: Any) -> Any:
        key = ("result", (source.time, source.export(value)))
        return self.add_input(key, value.dtype, value.shape, value)

    def outer_value(self, tensor: Any) -> Any:
        time = self.planner.time(tensor)
        if time == BEFORE:
            placement = self.planner.placement(tensor)
            like = tensor if tensor.dtype.name in ("resource", "variant") else None
            shape = local_shape(tensor, placement)
            is_part = tensor.dtype.name == "resource" and isinstance(placement, Shard)
            axis = placement.axis if is_part else None  # type: ignore[attr-defined]
            return self.add_input(("input", id(tensor)), tensor.dtype, shape, like, axis)
        source = self.program.stage(time)
        return self._from(source, source.value(tensor))

    def outer_symbol(self, key: Any) -> Any:
        if key == "index":
            if self.runs_once:
                return self.cached("index", lambda: tf.constant(0))
            return self.add_input(("index", None), "int32", [])
        if isinstance(key, Space):
            return self.add_input(("counts", key), "int32", [self.program.collectives.replicas])
        time = self.planner.time(key.tensor)
        if time in (BEFORE, self.time):
            return self.read_symbol(key)
        source = self.program.stage(time)
        return self._from(source, source.read_symbol(key))

    def controls(self, item: Any) -> list[Any]:
        if self.writes:  # variables are changed after all reads
            self.after[self.program.stage(self.time)] = None
        before = [stage for time, stage in self.program.stages.items() if time < self.time]
        before += [stage.writer for stage in before if stage.writer is not None]
        found = []
        for op in item.controls:
            if op in self.operations:
                found.append(self.operations[op])
            else:
                self.after |= dict.fromkeys(stage for stage in before if op in stage.operations)
        return found

    def outer_replicated(self, tensor: Any) -> Any:
        program = self.program
        placement: Any = self.planner.placement(tensor)
        count = program.collectives.replicas
        program.used.add(id(tensor))
        key = ("exchange", id(tensor))
        if isinstance(placement, Shard):
            shape = tensor.shape
            whole = self.add_input(key, tensor.dtype, shape)
            return self._sorted(whole, placement) if len(placement.rows.segments) > 1 else whole
        if placement.op == "add":
            return self.add_input(key, tensor.dtype, tensor.shape)
        known = None if tensor.shape.rank is None else [count, *tensor.shape]
        stacked = self.add_input(key, tensor.dtype, known)
        return reduce_stacked(placement, stacked, self.rows_of_replicas)

    def rows_of_replicas(self, rows: Rows) -> Any:
        """Return how many rows each replica has, a vector; of one segment, up to its unit."""
        if len(rows.segments) == 1:
            return self.counts(rows.segments[0][0].root())
        return tf.add_n([self.counts(s.root()) * self.size(u, "int32") for s, u in rows.segments])

    def outer_scattered(self, tensor: Any) -> Any:
        self.program.used.add(id(tensor))
        shape = local_shape(tensor, self.planner.scattered[id(tensor)])
        return self.add_input(("exchange", id(tensor)), tensor.dtype, shape)

    def _sorted(self, gathered: Any, placement: Shard) -> Any:
        """Bring the replicas' blocks of several segments into the order of the whole batch."""
        sizes, count = [], self.program.collectives.replicas
        for replica in range(count):
            for space, unit in placement.rows.segments:
                sizes.append(self.counts(space.root())[replica] * self.size(unit, "int32"))
        blocks = tf.split(gathered, tf.stack(sizes), placement.axis, num=len(sizes))
        step = len(placement.rows.segments)
        order = [blocks[r * step + s] for s in range(step) for r in range(count)]
        return tf.ensure_shape(tf.concat(order, placement.axis), gathered.shape)


def reduce_stacked(
    placement: Partial, stacked: Any, rows_of_replicas: Callable[[Rows], Any]
) -> Any:
    """Reduce the stack of the replicas' tensors."""
    if placement.op == "moments" and placement.rows is not None:
        # As in Chan, Golub & LeVeque 1983. Without rows, a replica has moments that are no numbers.
        counts = tf.cast(rows_of_replicas(placement.rows), stacked.dtype)
        shares = tf.reshape(counts / tf.reduce_sum(counts), [-1, *[1] * (len(stacked.shape) - 2)])
        means, variances = tf.unstack(stacked, axis=1)
        mean = tf.reduce_sum(tf.math.multiply_no_nan(means, shares), 0)
        variances += tf.math.squared_difference(means, mean)
        return tf.stack([mean, tf.reduce_sum(tf.math.multiply_no_nan(variances, shares), 0)])
    if placement.op == "statistics":
        counts, means, squares = tf.unstack(stacked, axis=1)
        count = tf.reduce_sum(counts, 0)
        mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), count)
        squares = tf.reduce_sum(squares + counts * tf.square(means - mean), 0)
        return tf.stack([count, mean, squares])
    reduce = {
        "all": tf.reduce_all,
        "any": tf.reduce_any,
        "max": tf.reduce_max,
        "min": tf.reduce_min,
        "prod": tf.reduce_prod,
    }[placement.op]
    return reduce(stacked, 0)
