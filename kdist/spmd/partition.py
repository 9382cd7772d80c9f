"""Partition a step: trace it for the global batch, plan it, and write its program.

`partition` calls these functions in turn. `_trace_step` traces the step with placeholders for the
global batch (`_input_tensor_of`). `_plan_step` places the inputs and variables, and plans the
operations, until no `ComputeWholeError` asks for a new plan. `_row_counts` counts the rows of each
replica. `_write_program` writes the stages and their calls. `run_eagerly` needs no plan.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.eager.polymorphic_function.polymorphic_function import OptionalXlaContext
from tensorflow.python.framework import type_spec
from tensorflow.python.ops import handle_data_util

from .._upstream.collective_launchers import is_tracing_step
from .._upstream.one_device_tracing import converted, one_device
from .._upstream.row_counts import attached_counts
from ..errors import UserError
from . import rules, validation
from .collectives import HOST, Collectives, device_for
from .divided_datasets import split_rows
from .explanation import Explanation, describe_plan, explain_plan, find_user_line
from .functions import Bodies
from .operation import ComputeWholeError
from .placements import REPLICATE, Shard
from .plan import GraphPlan, is_single_row, live_operations
from .program import Program, stays_divided
from .rows import Rows
from .sizes import BatchAxis
from .tensor_facts import Ref, StepFacts
from .trace import InputTensor, Trace, trace_step

WEIGHT_BYTES = 25 * 2**20
"""Most bytes of divided weights gathered for a stage; a larger weight is gathered alone."""

__all__ = ["GlobalRows", "Step", "partition", "rules", "run_eagerly"]


class GlobalRows(values.PerReplica):
    """A result of a step that stays divided: each replica's rows of a batch."""

    @property
    def _type_spec(self) -> GlobalRowsSpec:
        return GlobalRowsSpec(*(type_spec.type_spec_from_value(part) for part in self.values))


class GlobalRowsSpec(values.PerReplicaSpec):
    """Type spec of `GlobalRows`."""

    value_type = property(lambda self: GlobalRows)

    def _from_components(self, parts: Any) -> GlobalRows:
        return GlobalRows(parts)


@dataclass(frozen=True)
class Step:
    """A function of the global batch, and options of its division.

    Attributes:
        splits: Whether whole tensors among the arguments are divided, too, as batches.
        keeps_rows: Whether results that are divided along their first axis stay divided.
        jit_compile: Whether XLA compiles the operations between two exchanges.
        draws_by_xla: Whether XLA compiles random draws even without `jit_compile`.
        batch_rows: The expected number of rows of a batch, where shapes do not say the number.
    """

    fn: Callable[..., Any]
    splits: bool = False
    keeps_rows: bool = True
    jit_compile: bool = False
    draws_by_xla: bool = False
    batch_rows: int | None = None


def partition(strategy: Any, step: Step, args: Any, kwargs: Any) -> tuple[Any, Explanation]:
    """Write a step into the current graph, divided over the replicas.

    Parts of batches in the arguments are `PerReplica` values. Return the step's results, and the
    explanation of how the step was divided.
    """
    collectives = strategy.collectives()
    # Whether all workers trace this step together, with parts of the same known sizes.
    is_alike = collectives.replicas == len(collectives.devices) or is_tracing_step()
    traced = _trace_step(strategy, step, args, kwargs, collectives, is_alike)
    results = [
        (tensor, step.keeps_rows and may_keep)
        for tensor, may_keep in zip(traced.outputs, _may_keep_rows(traced.structure), strict=True)
        if tensor is not None
    ]
    plan, batches, captured = _plan_step(strategy, step, traced, results, collectives)
    digest = None
    if is_alike:
        strategy.compare_plan(plan)
    else:
        digest = zlib.crc32("\n".join(describe_plan(plan)).encode()) // 2
    program = Program(
        plan,
        _input_values(traced, collectives) | captured,
        collectives,
        _row_counts(plan, batches, collectives, digest),
        jit_compile=step.jit_compile,
        draws_by_xla=step.draws_by_xla,
    )
    structure = tf.nest.pack_sequence_as(
        traced.structure, _write_program(program, traced, results), expand_composites=True
    )
    explanation = explain_plan(
        plan,
        program.exchange_rounds,
        program.exchanged_tensors(),
        replicas=strategy.num_replicas_in_sync,
        rows=strategy.explained_rows,
    )
    return structure, explanation


def _trace_step(
    strategy: Any,
    step: Step,
    args: Any,
    kwargs: Any,
    collectives: Collectives,
    is_alike: bool,
) -> Trace:
    args, kwargs = tf.nest.map_structure(
        lambda value: _join_composite(strategy, value, collectives), (args, kwargs)
    )
    fn = converted(step.fn)

    def call_in_xla_context(*args: Any, **kwargs: Any) -> Any:
        # In this context, TensorFlow makes loops and conditions that XLA can compile.
        with OptionalXlaContext(step.jit_compile):
            return fn(*args, **kwargs)

    input_tensor_of = functools.partial(
        _input_tensor_of, strategy, collectives, step.splits, is_alike
    )
    return trace_step(strategy, call_in_xla_context, args, kwargs, input_tensor_of)


def _write_program(
    program: Program, traced: Trace, results: Sequence[tuple[tf.Tensor, bool]]
) -> list[Any]:
    """Write a program; return its results as a flat list, in the order of the traced results."""
    collectives = program.collectives
    is_validated = validation.is_validated() and collectives.replicas == len(collectives.devices)
    check = validation.Validation(program) if is_validated else None
    values = program.write_step(results)
    written = iter(check.compare_all(values) if check else values)
    flat: list[Any] = []
    for tensor in traced.outputs:
        result = None if tensor is None else next(written)
        flat.append(GlobalRows(tuple(result)) if isinstance(result, list) else result)
    return flat


# Inputs


def _input_tensor_of(
    strategy: Any, collectives: Collectives, splits: bool, is_alike: bool, value: Any
) -> InputTensor | list[InputTensor] | None:
    """Return the replicas' values of an argument; `None` for an argument that is no tensor."""
    count = len(collectives.devices)
    if isinstance(value, _COMPOSITES):
        components = tf.nest.flatten(value, expand_composites=True)
        return [InputTensor([component] * count, False) for component in components]
    if isinstance(value, tf.Tensor):
        if splits and value.shape.rank:
            with tf.device(device_for(value, collectives.devices[0])):
                parts = split_rows(value, collectives.replicas)
            own = [parts[place] for place in collectives.places]
            return InputTensor(own, True, collectives.replicas, value.shape[0])
        return InputTensor([value] * count, False)
    if not has_replica_values(value):
        return None
    parts = strategy.experimental_local_results(value)
    if not tf.is_tensor(parts[0]):
        return None
    parts = [tf.convert_to_tensor(part) for part in parts]
    if parts[0].shape.rank is None:  # The rows of a tensor of unknown rank are unknown.
        return InputTensor(collectives.gather(parts, 0), False)
    if parts[0].shape.rank == 0:
        return InputTensor(_take_equal_scalar(parts, collectives), False)
    known = collectives.replicas if is_alike else None
    return InputTensor(parts, True, known, counts=attached_counts(value))


def has_replica_values(value: Any) -> bool:
    """Whether each replica has a value of its own, such as a part of a batch; not for variables."""
    is_variable = isinstance(value, values.DistributedVariable)
    return isinstance(value, values.DistributedValues) and not is_variable


def _take_equal_scalar(parts: Sequence[tf.Tensor], collectives: Collectives) -> list[tf.Tensor]:
    """Return the replicas' scalars, after a check that all are the same."""
    found = []
    stacks = collectives.stack(parts)
    for part, device, stacked in zip(parts, collectives.devices, stacks, strict=True):
        message = (
            "a step sees the global batch, but one of its arguments is a scalar that differs"
            " between replicas: pass a tensor with one value per row, or the same scalar to all."
            " The values are"
        )
        check = tf.debugging.Assert(tf.reduce_all(tf.equal(stacked, part)), [message, stacked])
        with tf.device(device_for(part, device)), tf.control_dependencies([check]):
            found.append(tf.identity(part))
    return found


_COMPOSITES = (tf.SparseTensor, tf.RaggedTensor, tf.IndexedSlices)


def _join_composite(strategy: Any, value: Any, collectives: Collectives) -> Any:
    """Join the parts of a sparse batch, which is computed whole."""
    if not has_replica_values(value):
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
    if isinstance(parts[0], tf.RaggedTensor | tf.IndexedSlices):
        raise UserError(
            f"received a {type(parts[0]).__name__} for each replica, expected dense or"
            " sparse tensors: pad ragged rows in the dataset, such as"
            " data.map(lambda x, y: (x.to_tensor(), y)), and call tf.convert_to_tensor on"
            " IndexedSlices; or use one machine, where `fit` and `experimental_distribute_dataset`"
            " keep ragged batches whole"
        )
    return value


def _input_values(traced: Trace, collectives: Collectives) -> dict[Ref, Sequence[tf.Tensor]]:
    return {
        placeholder.ref(): (
            collectives.gather(tensor.parts, 0)
            if tensor.is_rows and is_single_row(placeholder)
            else tensor.parts
        )
        for placeholder, tensor in traced.inputs
    }


# Plan


def _plan_step(
    strategy: Any,
    step: Step,
    traced: Trace,
    results: Sequence[tuple[tf.Tensor, bool]],
    collectives: Collectives,
) -> tuple[GraphPlan, dict[BatchAxis, InputTensor], dict[Ref, Sequence[tf.Tensor]]]:
    """Plan a traced step; return the plan, the batches, and the values of captured tensors."""
    operations = live_operations(traced.graph, [tensor for tensor, _ in results])
    bodies = Bodies()
    whole: set[tf.Operation] = set()
    while True:  # Each attempt computes more operations whole, so the attempts end.
        facts = StepFacts(
            bodies,
            in_fixed_order=collectives.in_fixed_order,
            weight_bytes=WEIGHT_BYTES if strategy.extended.divides_weights else None,
            batch_rows=strategy.explained_rows or step.batch_rows,
        )
        plan = GraphPlan(whole=whole, step=facts, can_check=not step.jit_compile)
        batches = _set_inputs(plan, traced, collectives)
        captured = _set_captured(plan, strategy, traced, len(collectives.devices))
        try:
            plan.plan_operations(op for op in operations if op.type != "Placeholder")
            for tensor, keeps_rows in results:
                if not (keeps_rows and stays_divided(plan.placement_of(tensor))):
                    plan.plan_conversion(plan.resolve_alias(tensor), REPLICATE)
            plan.settle_conversions()
            plan.delay_updates()
            return plan, batches, captured
        except ComputeWholeError as error:
            whole |= error.operations


def _set_inputs(
    plan: GraphPlan, traced: Trace, collectives: Collectives
) -> dict[BatchAxis, InputTensor]:
    """Set the placements of a step's inputs; return the inputs that are batches."""
    batches: dict[BatchAxis, InputTensor] = {}
    for number, (placeholder, tensor) in enumerate(traced.inputs):
        if not tensor.is_rows or is_single_row(placeholder):  # Every replica gets a single row.
            plan.set_input(placeholder, REPLICATE)
            continue
        parts = _known_part_sizes(tensor, collectives.replicas)
        batch_axis = BatchAxis(f"input {number}", placeholder.shape[0], parts=parts)
        batches[batch_axis] = tensor
        plan.set_input(placeholder, Shard(0, Rows(((batch_axis, 1),))))
    return batches


def _set_captured(
    plan: GraphPlan, strategy: Any, traced: Trace, replicas: int
) -> dict[Ref, Sequence[tf.Tensor]]:
    """Set the placements of tensors that a step captures, such as variables; return the values."""
    captured: dict[Ref, Sequence[tf.Tensor]] = {}
    for outer, inner in traced.graph.captures:
        own, division = strategy.extended.copies_of(outer)
        is_whole = division is None
        plan.set_input(inner, REPLICATE if is_whole else _place_variable(plan, division, inner))
        if own is None and inner.dtype == tf.resource:
            plan.step.shared.add(inner.ref())
        captured[inner.ref()] = own or [outer] * replicas
    return captured


def _place_variable(plan: GraphPlan, division: Any, handle: tf.Tensor) -> Shard:
    """Return the placement of a divided variable's handle, also the placement of its values."""
    known = {
        shard.rows.segments[0][0].parts: shard.rows for shard in plan.step.variable_shards.values()
    }
    rows = known.get(division.sizes)
    if rows is None:
        total = sum(division.sizes)
        name = f"{total} rows of variables"
        rows = Rows(((BatchAxis(name, total, parts=division.sizes, is_batch=False), 1),))
    (data,) = handle_data_util.get_resource_handle_data(handle).shape_and_type
    shape = tuple(tf.TensorShape(data.shape).as_list())
    return plan.step.variable_shards.setdefault(shape, Shard(division.axis, rows))


def _may_keep_rows(structure: Any) -> list[bool]:
    """Return for each result whether it may stay divided; components of composites may not."""
    return [
        not isinstance(result, _COMPOSITES)
        for result in tf.nest.flatten(structure)
        for _ in tf.nest.flatten(result, expand_composites=True)
    ]


def _known_part_sizes(tensor: InputTensor, count: int) -> tuple[int, ...] | None:
    """Return the number of rows of each replica, if all parts are here and have known sizes."""
    parts = tuple(part.shape[0] for part in tensor.parts)
    return None if None in parts or len(parts) < count else parts


# Numbers of rows


def _row_counts(
    plan: GraphPlan,
    batches: dict[BatchAxis, InputTensor],
    collectives: Collectives,
    digest: int | None,
) -> dict[BatchAxis, tf.Tensor]:
    """Return the replicas' numbers of rows, after checks of batches that need equal numbers.

    Workers that do not trace a step together send a digest of the plan with their numbers of rows:
    different digests are an error.
    """
    own = {axis: [tf.shape(part)[0] for part in tensor.parts] for axis, tensor in batches.items()}
    known = {
        axis.root(): tensor.counts for axis, tensor in batches.items() if tensor.counts is not None
    }
    checks = [_check_equal(plan, axis, own) for axis in own if axis.root() is not axis]
    found: dict[BatchAxis, tf.Tensor] = {}
    with tf.control_dependencies(checks):
        for axis, counts in own.items():
            if axis.root() is not axis:
                continue
            if axis in known:
                found[axis] = tf.cast(known[axis], "int32")
            elif digest is None:
                found[axis] = collectives.stack([tf.identity(count) for count in counts])[0]
            else:
                found[axis] = _counts_with_digest(counts, digest, collectives)
    for shard in plan.step.variable_shards.values():
        ((axis, _),) = shard.rows.segments
        found[axis] = tf.constant(axis.parts)
    return found


def _check_equal(
    plan: GraphPlan, axis: BatchAxis, own: dict[BatchAxis, list[tf.Tensor]]
) -> tf.Operation:
    """Check that a batch axis has as many rows on each replica as its `root`."""
    root = axis.root()
    op = next(assumption.op for assumption in plan.assumed if assumption.other is axis)
    message = (
        f"{root.name} and {axis.name} of the step meet in {find_user_line(op)} ({op.type}), so that"
        " each replica needs equally many rows of both. If one is a single row for all samples,"
        " repeat the row for each sample in the data, or pass it to the step outside of the"
        " dataset. The replicas have these numbers of rows"
    )
    with tf.device(HOST), tf.name_scope("on_host"):  # The numbers of rows are on the host.
        is_equal = tf.reduce_all(tf.equal(own[root], own[axis]))
        return tf.debugging.Assert(is_equal, [message, own[root], own[axis]])


def _counts_with_digest(
    counts: Sequence[tf.Tensor], digest: int, collectives: Collectives
) -> tf.Tensor:
    rows = collectives.stack([tf.stack([count, digest]) for count in counts])[0]
    message = "the workers run different steps: all have to call the same functions in turn"
    check = tf.debugging.Assert(tf.reduce_all(rows[:, 1] == digest), [message])
    with tf.control_dependencies([check]):
        return tf.identity(rows[:, 0])


def run_eagerly(strategy: Any, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a step eagerly on the first device, for the whole batch, then copy its variables.

    The result is exact, and a debugger can stop at every line, but the step is no faster than on a
    single device.
    """
    collectives = strategy.collectives()

    def join_parts(value: Any) -> Any:
        value = _join_composite(strategy, value, collectives)
        if not has_replica_values(value):
            return value
        parts = strategy.experimental_local_results(value)
        if tf.is_tensor(parts[0]) and parts[0].shape.rank:
            return collectives.gather(list(parts), 0)[0]
        return _take_equal_scalar(parts, collectives)[0] if tf.is_tensor(parts[0]) else parts[0]

    args, kwargs = tf.nest.map_structure(join_parts, (args, kwargs))
    with one_device(strategy):
        result = fn(*args, **kwargs)
    strategy.extended.copy_first()
    return result
