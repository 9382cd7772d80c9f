"""`GlobalViewStrategy`: runs a step as the program of one device, divided over the replicas.

`run` has the step traced (`trace.py`), planned (`plan.py`) and written (`program.py`): `partition`.
`collectives` says how its program exchanges values (`collectives.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import weakref
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.eager import def_function
from tensorflow.python.eager.polymorphic_function.polymorphic_function import OptionalXlaContext
from tensorflow.python.framework import type_spec
from tensorflow.python.ops import handle_data_util

from .._upstream.collective_launchers import is_tracing_step
from .._upstream.rows import attached_counts
from .._upstream.steps import converted, one_device, traced_strategy, unconverted
from . import validation
from .batches import split_rows
from .collectives import HOST, Collectives, FixedOrder, device_for
from .explanation import NOMINAL_ROWS, Explanation, described, explain, place_of, say
from .functions import Bodies
from .placements import REPLICATE, Rows, Shard
from .plan import ComputeWholeError, Planner, live_operations
from .program import Program, stays
from .replica_count import ReplicaCount, is_recognized, warning_in_step
from .sizes import Space
from .trace import Leaf, trace


class GlobalRows(values.PerReplica):
    """A result of a step that stays divided: each replica's rows of a batch."""

    @property
    def _type_spec(self) -> GlobalRowsSpec:
        return GlobalRowsSpec(*(type_spec.type_spec_from_value(part) for part in self.values))


class GlobalRowsSpec(values.PerReplicaSpec):
    """What a `tf.function` that returns such rows knows of them."""

    value_type = property(lambda self: GlobalRows)

    def _from_components(self, parts: Any) -> GlobalRows:
        return GlobalRows(parts)


@dataclasses.dataclass(frozen=True)
class Step:
    """A function of the global batch, and how it is divided.

    Attributes:
        fn: The function, for one device that sees the global batch.
        splits: Whether whole tensors among its arguments are batches, to be divided, too.
        keeps_rows: Whether results divided along their first axis stay so.
        jit_compile: Whether XLA compiles what lies between two exchanges.
        draws_by_xla: Whether it compiles the draws in any case.
    """

    fn: Callable[..., Any]
    splits: bool = False
    keeps_rows: bool = True
    jit_compile: bool = False
    draws_by_xla: bool = False


class GlobalViewStrategy(tf.distribute.Strategy):
    """Base class of strategies whose steps see the global batch.

    A step is traced once, as the program of one device, and divided over the replicas. Inside it
    `num_replicas_in_sync` is 1, and a sum over replicas is the value itself. So code written for
    other strategies comes out the same if it reads that number inside the step, and does not tell
    replicas apart.
    """

    workers: int
    explained_rows: int | None = None  # of a batch, while a step is explained
    explanation: Explanation  # of that step

    def start_global_view(self) -> None:
        """Make what the strategy stores of its steps."""
        self._said: set[str] = set()
        self._one_at_a_time = threading.RLock()
        self._compiled: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas; 1 inside a step, which sees the global batch."""
        if traced_strategy() is self:
            return 1
        count = len(self.extended.worker_devices) * self.workers
        return ReplicaCount(count) if count > 1 else 1

    def constant_made(self, numbers: Any, constant: Any) -> None:
        """Warn of a number in a step that follows from the number of replicas outside of it.

        Args:
            numbers: The value and the shape of a constant, as the step has them.
            constant: The tensor.
        """
        if is_recognized(numbers):
            frames = constant.op.traceback or ()
            places = [(frame.filename, frame.lineno) for frame in frames]
            say(warning_in_step(places), self._said)

    @unconverted
    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Run `fn` for the global batch, divided over the replicas.

        In `fn` there is one device: it sees the rows of all replicas, and `num_replicas_in_sync` is
        1. Its results are those of the global batch; one that has the batch's rows stays divided.

        Args:
            fn: The step.
            args: Its arguments; parts of batches are `PerReplica` values.
            kwargs: The same, by name.
            options: Accepted for compatibility with `tf.distribute.Strategy.run`.
        """
        del options
        return self.run_step(self.as_step(fn), args, kwargs)

    def as_step(self, fn: Callable[..., Any]) -> Step:
        """Return how a function is divided."""
        return Step(fn)

    @unconverted
    def run_step(self, step: Step, args: Any, kwargs: Any = None) -> Any:
        """Run a step, as `run` does."""
        kwargs = kwargs or {}
        if traced_strategy() is self:  # a step within a step
            return step.fn(*args, **kwargs)
        if tf.executing_eagerly():
            if isinstance(step.fn, def_function.Function):
                with self._one_at_a_time:  # as those of two threads would meet
                    return self._compiled_step(step.fn)(args, kwargs)
            return run_whole(self, step.fn, args, kwargs)
        if self.extended._num_replicas_in_sync == 1:
            args, kwargs = tf.nest.map_structure(self._only_part, (args, kwargs))
            with one_device(self):
                return converted(step.fn)(*args, **kwargs)
        result, explanation = partition(self, step, args, kwargs)
        if self.explained_rows is None:
            say(explanation.message(), self._said)
        else:
            self.explanation = explanation
        return result

    def _only_part(self, value: Any) -> Any:
        return self.experimental_local_results(value)[0] if _is_divided(value) else value

    def _compiled_step(self, fn: Any) -> Any:
        if fn not in self._compiled:
            weak = weakref.ref(fn)

            def step(args: Any, kwargs: Any) -> Any:
                return self.run_step(Step(cast(Any, weak())), args, kwargs)

            self._compiled[fn] = tf.function(step, autograph=False, reduce_retracing=True)
        return self._compiled[fn]

    def collectives(self) -> Collectives:
        """Return how the replicas exchange values, on GPUs by launchers of `GlobalViewExtended`."""
        devices = self.extended.shard_devices
        if self.extended.in_fixed_order:
            return FixedOrder(devices)
        cross_device_ops = self.extended._cross_device_ops
        if type(cross_device_ops) is tf.distribute.ReductionToOneDevice:
            cross_device_ops = None  # adds up on the first device, too
        elif cross_device_ops is None:
            cross_device_ops = self.extended._get_cross_device_ops(None)
        return Collectives(devices, cross_device_ops)

    def before_gathering(self, name: str) -> None:
        """Do what comes before the value of a divided variable is put together."""

    def compare_plan(self, planner: Planner) -> None:
        """Compare a step that all workers trace together with theirs, before it is written."""

    @unconverted
    def reduce(self, reduce_op: Any, value: Any, axis: Any) -> Any:
        """Reduce the result of a step: it is that of the global batch already.

        Rows of a batch that are divided over replicas are put together, and then reduced along
        `axis` if that is a number.
        """
        reduce = functools.partial(_reduced, self, reduce_op, axis)
        return tf.nest.map_structure(reduce, value)

    @unconverted
    def gather(self, value: Any, axis: int) -> Any:
        """Return all rows of a batch or of a step's result; what is whole stays as it is."""

        def gathered(one: Any) -> Any:
            if isinstance(one, values.DistributedValues):
                return self.collectives().gather(self.experimental_local_results(one), axis)[0]
            return one

        return tf.nest.map_structure(gathered, value)


def _reduced(strategy: Any, reduce_op: Any, axis: Any, value: Any) -> Any:
    if not _is_divided(value):
        whole = value
    else:
        parts: Sequence[Any] = strategy.experimental_local_results(value)
        if not isinstance(value, GlobalRows) and axis is None:
            return tf.distribute.Strategy.reduce(strategy, reduce_op, value, axis)
        whole = strategy.collectives().gather(parts, 0)[0]
    if axis is None:
        return whole
    by_sum = reduce_op in (tf.distribute.ReduceOp.SUM, "SUM", "sum")
    return (tf.reduce_sum if by_sum else tf.reduce_mean)(whole, axis)


def partition(strategy: Any, step: Step, args: Any, kwargs: Any) -> tuple[Any, Explanation]:
    """Write a step into the current graph, divided over the replicas.

    Args:
        strategy: The strategy.
        step: The step.
        args: Arguments of the step; parts of batches are `PerReplica` values.
        kwargs: The same, by name.

    Returns:
        What the step returned, and how it was divided.
    """
    collectives = strategy.collectives()
    # Whether all workers trace this step together, with parts of the same known sizes.
    is_alike = collectives.replicas == len(collectives.devices) or is_tracing_step()
    args, kwargs = tf.nest.map_structure(
        lambda value: _composite(strategy, value, collectives), (args, kwargs)
    )
    fn = converted(step.fn)

    def compilable(*args: Any, **kwargs: Any) -> Any:
        with OptionalXlaContext(step.jit_compile):  # makes loops and conditions that XLA compiles
            return fn(*args, **kwargs)

    leaf_of = functools.partial(_leaf_of, strategy, collectives, step.splits, is_alike)
    traced = trace(strategy, compilable, args, kwargs, leaf_of)
    results = [
        (tensor, step.keeps_rows and may_keep)
        for tensor, may_keep in zip(traced.outputs, _may_keep_rows(traced.structure), strict=True)
        if tensor is not None
    ]
    planner, spaces, copies = _plan(
        strategy, traced, results, collectives, can_check=not step.jit_compile
    )
    inputs = dict(copies)
    for placeholder, leaf in traced.inputs:
        parts = leaf.parts
        if leaf.is_rows and placeholder.shape[0] == 1:
            parts = collectives.gather(parts, 0)
        inputs[id(placeholder)] = parts
    digest = None
    if is_alike:
        strategy.compare_plan(planner)
    else:
        digest = zlib.crc32("\n".join(described(planner)).encode()) // 2
    counts = _counts(planner, spaces, collectives, digest)
    for shard in planner.divisions.values():
        ((space, _),) = shard.rows.segments
        counts[space] = tf.constant(space.parts)
    program = Program(
        planner,
        inputs,
        collectives,
        counts,
        jit_compile=step.jit_compile,
        draws_by_xla=step.draws_by_xla,
    )
    if validation.is_on() and collectives.replicas == len(collectives.devices):
        check = validation.Validation(program)
        program.exports_all = True
        made = iter(check.check(program.write(results)))
    else:
        made = iter(program.write(results))
    flat: list[Any] = []
    for tensor in traced.outputs:
        result = None if tensor is None else next(made)
        flat.append(GlobalRows(tuple(result)) if isinstance(result, list) else result)
    structure = tf.nest.pack_sequence_as(traced.structure, flat, expand_composites=True)
    explanation = explain(
        planner,
        program.rounds,
        program.exchanged(),
        replicas=strategy.num_replicas_in_sync,
        rows=strategy.explained_rows or NOMINAL_ROWS,
    )
    return structure, explanation


def _leaf_of(
    strategy: Any, collectives: Collectives, splits: bool, is_alike: bool, value: Any
) -> Leaf | list[Leaf] | None:
    """Return what each part of the batch has of an argument; `None` for what is no tensor."""
    count = len(collectives.devices)
    if isinstance(value, _COMPOSITES):
        components = tf.nest.flatten(value, expand_composites=True)
        return [Leaf([one] * count, False) for one in components]
    if isinstance(value, tf.Tensor):
        if splits and value.shape.rank:
            return Leaf(_split(value, collectives), True, collectives.replicas, value.shape[0])
        return Leaf([value] * count, False)
    if not _is_divided(value):
        return None
    parts = strategy.experimental_local_results(value)
    if not tf.is_tensor(parts[0]):
        return None
    parts = [tf.convert_to_tensor(part) for part in parts]
    if parts[0].shape.rank is None:  # nothing can be said of its rows
        return Leaf(collectives.gather(parts, 0), False)
    if parts[0].shape.rank == 0:
        return Leaf(_only_value(parts, collectives), False)
    known = collectives.replicas if is_alike else None
    return Leaf(parts, True, known, counts=attached_counts(value))


def _is_divided(value: Any) -> bool:
    """Whether each replica has a value of its own, as of a batch; variables are no such values."""
    is_variable = isinstance(value, values.DistributedVariable)
    return isinstance(value, values.DistributedValues) and not is_variable


def _plan(
    strategy: Any,
    traced: Any,
    results: Sequence[tuple[Any, bool]],
    collectives: Collectives,
    *,
    can_check: bool,
) -> tuple[Planner, dict[Space, Leaf], dict[int, Sequence[Any]]]:
    """Plan a traced step.

    Returns:
        The plan; the batches among the inputs, by their space; and what each part has of every
        captured tensor, by its id.
    """
    operations = live_operations(traced.graph, [tensor for tensor, _ in results])
    bodies = Bodies()
    whole: set[Any] = set()
    while True:  # each attempt computes more operations whole, so there is a last one
        planner = Planner(
            whole=whole,
            bodies=bodies,
            in_fixed_order=collectives.in_fixed_order,
            can_check=can_check,
        )
        spaces: dict[Space, Leaf] = {}
        for number, (placeholder, leaf) in enumerate(traced.inputs):
            total = placeholder.shape[0] if leaf.is_rows else None
            if leaf.is_rows and total != 1:
                sizes = _known_parts(leaf, collectives.replicas)
                space = Space(f"input {number}", total, parts=sizes)
                spaces[space] = leaf
                planner.set_input(placeholder, Shard(0, Rows(((space, 1),))))
            else:
                planner.set_input(placeholder, REPLICATE)
        copies: dict[int, Sequence[Any]] = {}
        for outer, inner in traced.graph.captures:
            planner.set_input(inner, REPLICATE)
            own, division = strategy.extended.copies_of(outer)
            if division is not None:
                planner.set_input(inner, _placement_of(planner, division, inner))
            if own is None and inner.dtype == tf.resource:
                planner.shared.add(id(inner))
            copies[id(inner)] = own or [outer] * len(collectives.devices)
        try:
            planner.run(op for op in operations if op.type != "Placeholder")
            for tensor, keeps in results:
                _demand_result(planner, tensor, keeps)
            return planner, spaces, copies
        except ComputeWholeError as error:
            whole |= error.operations


def _placement_of(planner: Planner, division: Any, handle: Any) -> Shard:
    """Return the placement of the handle of a divided variable, and how its values are divided."""
    known = {one.rows.segments[0][0].parts: one.rows for one in planner.divisions.values()}
    rows = known.get(division.sizes)
    if rows is None:
        total = sum(division.sizes)
        name = f"{total} rows of variables"
        rows = Rows(((Space(name, total, parts=division.sizes, is_batch=False), 1),))
    (data,) = handle_data_util.get_resource_handle_data(handle).shape_and_type
    shape = tuple(tf.TensorShape(data.shape).as_list())
    return planner.divisions.setdefault(shape, Shard(division.axis, rows))


def _only_value(parts: Sequence[Any], collectives: Collectives) -> list[Any]:
    """Return the scalars of the replicas, all of which have to be the same."""
    found = []
    for part, device, stacked in zip(
        parts, collectives.devices, collectives.stack(parts), strict=True
    ):
        message = (
            "a step sees the global batch, but one of its arguments is a scalar with another value"
            " on each replica: give it as a row of a batch, or the same to all. The values are"
        )
        check = tf.debugging.Assert(tf.reduce_all(tf.equal(stacked, part)), [message, stacked])
        with (
            tf.device(device_for(part, device)),
            tf.control_dependencies([check]),
        ):
            found.append(tf.identity(part))
    return found


_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)


def _composite(strategy: Any, value: Any, collectives: Collectives) -> Any:
    """Join the parts of sparse and ragged batches: they are computed whole."""
    if not _is_divided(value):
        return value
    parts = strategy.experimental_local_results(value)
    if isinstance(parts[0], tf.SparseTensor):
        shapes = collectives.stack([part.dense_shape for part in parts])[0]
        indices = []
        for part, place in zip(parts, collectives.places, strict=True):
            before = tf.reduce_sum(shapes[:place, 0])
            first = tf.one_hot(0, tf.shape(shapes)[1], before, 0, dtype=tf.int64)
            indices.append(part.indices + first)
        return tf.SparseTensor(
            collectives.gather(indices, 0)[0],
            collectives.gather([part.values for part in parts], 0)[0],
            tf.concat([[tf.reduce_sum(shapes[:, 0])], tf.reduce_max(shapes[:, 1:], 0)], 0),
        )
    if isinstance(parts[0], tf.IndexedSlices):
        return tf.IndexedSlices(
            collectives.gather([part.values for part in parts], 0)[0],
            collectives.gather([part.indices for part in parts], 0)[0],
            parts[0].dense_shape,
        )
    if isinstance(parts[0], tf.RaggedTensor):
        return _joined(parts, collectives)
    return value


def _joined(parts: Sequence[Any], collectives: Collectives) -> Any:
    """Join ragged parts, level by level; those whose rows are all of one length stay so."""
    if not isinstance(parts[0], tf.RaggedTensor):
        return collectives.gather(_of_one_width(parts, collectives), 0)[0]
    inner = _joined([part.values for part in parts], collectives)
    length = parts[0].uniform_row_length
    if length is not None:
        rows = tf.reduce_sum(collectives.stack([part.nrows() for part in parts])[0])
        return tf.RaggedTensor.from_uniform_row_length(inner, length, rows, validate=False)
    lengths = collectives.gather([part.row_lengths() for part in parts], 0)[0]
    return tf.RaggedTensor.from_row_lengths(inner, lengths, validate=False)


def _of_one_width(parts: Sequence[Any], collectives: Collectives) -> list[Any]:
    """Return parts whose inner axes have the same sizes; without rows, unknown ones are 0."""
    inner = parts[0].shape[1:]
    if inner.rank is None or inner.is_fully_defined():
        return list(parts)
    shapes = collectives.stack([tf.shape(part)[1:] for part in parts])[0]
    sizes = tf.reduce_max(shapes, 0)
    return [tf.reshape(part, tf.concat([tf.shape(part)[:1], sizes], 0)) for part in parts]


def _may_keep_rows(structure: Any) -> list[bool]:
    """Return for each result whether it may stay divided; parts of sparse ones may not."""
    return [
        not isinstance(one, _COMPOSITES)
        for one in tf.nest.flatten(structure)
        for _ in tf.nest.flatten(one, expand_composites=True)
    ]


def _demand_result(planner: Planner, output: Any, keeps_rows: bool) -> None:
    placement = planner.placement(output)
    if keeps_rows and stays(placement):
        return
    planner.demand(planner.canonical(output), placement, REPLICATE)


def _split(value: Any, collectives: Collectives) -> list[Any]:
    """Return each replica's rows of a whole batch."""
    with tf.device(device_for(value, collectives.devices[0])):
        parts = split_rows(value, collectives.replicas)
    return [parts[place] for place in collectives.places]


def _known_parts(leaf: Leaf, count: int) -> tuple[int, ...] | None:
    """Return how many rows each replica has, if all are here and known."""
    parts = tuple(part.shape[0] for part in leaf.parts)
    return None if None in parts or len(parts) < count else parts


def _counts(
    planner: Planner, spaces: dict[Space, Leaf], collectives: Collectives, digest: int | None
) -> dict[Space, Any]:
    """Return the replicas' numbers of rows, and check those that have to be equal.

    Workers that do not trace a step together send a digest of it with their numbers: it is an error
    if they have traced different ones.
    """
    own = {space: [tf.shape(p)[0] for p in leaf.parts] for space, leaf in spaces.items()}
    known: dict[Space, Any] = {}
    checks = []
    for space, leaf in spaces.items():
        root = space.root()
        if leaf.counts is not None:
            known[root] = leaf.counts
        if root is space:
            continue
        merge = next(merge for merge in planner.merges if merge.other is space)
        message = (
            f"{root.name} and {space.name} of the step meet in {place_of(merge.op)} "
            f"({merge.op.type}), so that each replica needs equally many rows of both. If one is a "
            "single row for all samples, repeat it for each of them in the data, or give it to the "
            "step otherwise than in a dataset. The replicas have these numbers of rows"
        )
        with tf.device(HOST), tf.name_scope("on_host"):  # where the numbers are
            equal = tf.reduce_all(tf.equal(own[root], own[space]))
            checks.append(tf.debugging.Assert(equal, [message, own[root], own[space]]))
    found = {}
    with tf.control_dependencies(checks):
        for space, counts in own.items():
            if space.root() is not space:
                continue
            if space in known:
                found[space] = tf.cast(known[space], "int32")
                continue
            if digest is None:
                found[space] = collectives.stack([tf.identity(count) for count in counts])[0]
                continue
            rows = collectives.stack([tf.stack([count, digest]) for count in counts])[0]
            message = "the workers run different steps: all have to call the same functions in turn"
            check = tf.debugging.Assert(tf.reduce_all(rows[:, 1] == digest), [message])
            with tf.control_dependencies([check]):
                found[space] = tf.identity(rows[:, 0])
    return found


def run_whole(strategy: Any, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a step eagerly on the first device, for the whole batch, then copy its variables.

    This is exact, and shows every line to a debugger, but no faster than one device.
    """
    collectives = strategy.collectives()

    def whole(value: Any) -> Any:
        value = _composite(strategy, value, collectives)
        if not _is_divided(value):
            return value
        parts = strategy.experimental_local_results(value)
        if tf.is_tensor(parts[0]) and parts[0].shape.rank:
            return collectives.gather(list(parts), 0)[0]
        return _only_value(parts, collectives)[0] if tf.is_tensor(parts[0]) else parts[0]

    args, kwargs = tf.nest.map_structure(whole, (args, kwargs))
    with one_device(strategy):
        result = fn(*args, **kwargs)
    strategy.extended.copy_first()
    return result
