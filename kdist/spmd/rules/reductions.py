"""Reductions over axes: over that of the rows, every replica has a part of the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..placements import AS_IS, PARTIAL, REPLICATE, Partial, Replicate, Shard
from ..plan import Decision, Operation, Rewrite
from ..sizes import AnySize, Size
from . import rule

PARTS = {
    "Sum": "add",
    "Mean": "add",
    "Max": "max",
    "Min": "min",
    "Prod": "prod",
    "All": "all",
    "Any": "any",
}


@rule(*PARTS)
def reduction(op: Operation) -> Decision | Rewrite | None:
    """Reduce over axes that are known, or that broadcasting has added."""
    rank, keep = op.rank(0), op.attr("keep_dims")
    if rank is None:
        return None
    found = _axes(op, rank)
    shard = op.shard(0)
    if shard is None:
        # The mean of integers is rounded.
        kinds = ("Sum",) if op.inputs[0].dtype.is_integer else ("Sum", "Mean")
        linear = op.type in kinds and op.is_partial(0, "add") and found is not None
        return Decision([PARTIAL, REPLICATE], [PARTIAL]) if linear else None
    if found is None:
        return None
    axes, unknown = found
    _name_axes(op, axes, unknown, keep)
    if shard.axis in unknown or (not keep and any(u < shard.axis for u in unknown)):
        return None
    emit = _over(op, axes, unknown, keep)
    if shard.axis not in axes:
        axis = shard.axis if keep else shard.axis - sum(a < shard.axis for a in axes)
        return Decision([AS_IS, AS_IS], [Shard(axis, shard.rows, shard.uniform)], emit)
    if op.type != "Mean":
        return Decision([AS_IS, AS_IS], [Partial(PARTS[op.type])], emit)
    return _variance(op, axes, shard, keep) or _mean(op, axes, shard, keep)


def _name_axes(op: Operation, axes: set[int], unknown: set[int], keep: bool) -> None:
    """Let unknown sizes of the result be those of the input."""
    dims = op.dims(0)
    if unknown or dims is None or op.outputs[0].shape.is_fully_defined():
        return
    kept = [1 if a in axes else d for a, d in enumerate(dims) if keep or a not in axes]
    op.planner.set_dims(op.outputs[0], kept)


def _mean(op: Operation, axes: set[int], shard: Shard, keep: bool) -> Decision | None:
    """Divide the sum of a replica's values by the number of all values."""
    if not op.inputs[0].dtype.is_floating:
        return None
    dims: Any = op.dims(0)
    count: AnySize = math.prod(dims[a] for a in axes)

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        x, dtype = inputs[0], inputs[0].dtype
        if dtype.size < 4:  # the sum may be too large, and the number inexact
            x = tf.cast(x, tf.float32)
        total = tf.reduce_sum(x, sorted(axes), keepdims=keep)
        return [tf.cast(total / stage.size(count, total.dtype), dtype)]

    return Decision([AS_IS, AS_IS], [PARTIAL], emit, needs=[count])


def _variance(op: Operation, axes: set[int], shard: Shard, keep: bool) -> Rewrite | None:
    """Compute the mean of squared distances from the mean of the same values.

    `tf.nn.moments` does this. It does not wait for the mean of all values: each replica sums the
    squared distances from its own mean, and all are merged as in Chan, Golub & LeVeque 1983.
    """
    squares = op.op.inputs[0].op
    if squares.type != "SquaredDifference" or op.planner.parent is not None or not keep:
        return None
    x, stopped = (op.planner.canonical(t) for t in squares.inputs)
    if stopped.op.type != "StopGradient":
        return None
    mean = op.planner.canonical(stopped.op.inputs[0])
    if mean.op.type != "Mean" or op.planner.canonical(mean.op.inputs[0]) is not x:
        return None
    placement = op.planner.placement(x)
    found = _axes(Operation(op.planner, mean.op), x.shape.rank)
    if placement != shard or found != (axes, set()) or not mean.op.get_attr("keep_dims"):
        return None
    if op.planner.placement(mean) != PARTIAL:
        return None

    def make() -> Sequence[Any]:
        count, _, distances = tf.unstack(statistics(squares.inputs[0], tf.constant(sorted(axes))))
        return [distances / count]

    return Rewrite(make)


@tf.function(autograph=False, experimental_implements="statistics")
def statistics(x: Any, axes: Any) -> Any:
    """Return count, mean, and sum of squared distances from it, stacked.

    Args:
        x: The values.
        axes: The axes over which they are taken, which stay with size 1.
    """
    count = tf.reduce_prod(tf.cast(tf.gather(tf.raw_ops.Shape(input=x), axes), x.dtype))
    mean = tf.reduce_sum(x, axes, keepdims=True) / tf.maximum(count, 1)
    distances = tf.reduce_sum(tf.math.squared_difference(x, mean), axes, keepdims=True)
    return tf.stack([tf.fill(tf.shape(mean), count), mean, distances])


@rule("kernel:statistics")
def _statistics(op: Operation) -> Decision | None:
    shard, axes = op.shard(0), op.constant(1)
    if shard is None or axes is None or shard.axis not in axes:
        return None
    return Decision(
        [AS_IS, REPLICATE],
        [Partial("statistics")],
        lambda stage, op, inputs: stage.call_kernel(op, inputs),
    )


def _axes(op: Operation, rank: int) -> tuple[set[int], set[int]] | None:
    """Return the axes that are reduced and those of which this is unknown."""
    value = op.constant(1)
    if value is not None:
        return ({int(a) % rank for a in np.atleast_1d(value)} if rank else set()), set()
    broadcast, first = _broadcast_axes(op)
    found = op.planner.reduced_axes.get(id(broadcast))
    return None if found is None else tuple({first + a for a in axes} for axes in found)  # type: ignore[return-value]


def _broadcast_axes(op: Operation) -> tuple[Any, int]:
    """Return the axes that broadcasting has added, and how many axes are before their first."""
    axes = op.inputs[1]
    if axes.op.type != "AddV2":
        return axes, 0
    one, other = (op.planner.canonical(t) for t in axes.op.inputs)
    first = op.planner.constant(one)  # as in the gradient of an equation with `...`
    is_count = first is not None and np.shape(first) == () and first >= 0
    return (other, int(first)) if is_count else (axes, 0)


def _over(op: Operation, axes: set[int], unknown: set[int], keep: bool) -> Any:
    """Return how to reduce over the axes that broadcasting has added, unless they are constants.

    If a batch has a single row, `BroadcastGradientArgs` names the batch's axis, too: over it, the
    gradient's sum would change nothing on one device, but on a replica it would.
    """
    broadcast, first = _broadcast_axes(op)
    source = broadcast.op
    if source.type != "BroadcastGradientArgs":
        return None
    reduce = {"Sum": tf.reduce_sum, "Mean": tf.reduce_mean}[op.type]
    if not unknown:
        return lambda stage, op, inputs: [reduce(inputs[0], sorted(axes), keepdims=keep)]
    vectors = [op.planner.sizes(t) for t in source.inputs]
    index = broadcast.value_index

    def emit(stage: Any, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        shapes: list[list[Any]] = [[], []]
        for axis in range(-max(map(len, vectors)), 0):
            place = axis + max(map(len, vectors))
            if first + place in unknown:
                pair = [v[axis] if -axis <= len(v) else 1 for v in vectors]
            else:
                pair = [1 if first + place in axes else 2] * 2
                pair[1 - index] = 2
            for shape, size in zip(shapes, pair, strict=True):
                shape.append(stage.size(size, "int32"))
        found = tf.raw_ops.BroadcastGradientArgs(s0=tf.stack(shapes[0]), s1=tf.stack(shapes[1]))[
            index
        ]
        return [reduce(inputs[0], first + found, keepdims=keep)]

    return emit


def _counts_rows(size: AnySize) -> bool:
    return isinstance(size, Size) and bool(size.spaces())


@rule("BroadcastGradientArgs")
def broadcast_axes(op: Operation) -> Decision | None:
    """Note over which axes the gradients of a broadcast are summed."""
    vectors = [op.sizes(0), op.sizes(1)]
    if all(v is not None for v in vectors):
        longest = max(map(len, vectors))
        for index, output in enumerate(op.outputs):
            reduced, unknown = set(), set()
            for back in range(1, longest + 1):
                mine, other = (
                    v[-back] if back <= len(v) else 1 for v in (vectors[index], vectors[1 - index])
                )
                if isinstance(mine, int) and mine == 1:
                    reduced.add(longest - back)
                elif isinstance(mine, Size) and not _counts_rows(mine) and mine != other:
                    unknown.add(longest - back)
            op.planner.reduced_axes[id(output)] = (reduced, unknown)
    if not all(isinstance(p, Replicate) for p in op.placements):
        return None
    return Decision([REPLICATE, REPLICATE], [REPLICATE, REPLICATE])


@rule("L2Loss")
def l2_loss(op: Operation) -> Decision | None:
    """Sum half of the squares."""
    division = op.planner.division(op.inputs[0])
    if op.is_partial(0, "add") and division is not None:
        return Decision([division], [PARTIAL])
    return None if op.shard(0) is None else Decision([AS_IS], [PARTIAL])


@rule("ReduceJoin")
def join_texts(op: Operation) -> Decision | None:
    """Join texts along other axes than that of the rows; without any axis, all are joined."""
    shard, rank = op.shard(0), op.rank(0)
    if shard is None or rank is None or op.constant(1) is None:
        return None
    axes = {int(a) % rank for a in np.ravel(op.constant(1))}
    if not axes or shard.axis in axes:
        return None
    before = 0 if op.attr("keep_dims") else sum(a < shard.axis for a in axes)
    return Decision([AS_IS, REPLICATE], [shard.plain().at(shard.axis - before)])


@rule("ArgMax", "ArgMin")
def arg_max(op: Operation) -> Decision | None:
    """Find the largest value along another axis than that of the rows."""
    axis, shard, rank = op.constant(1), op.shard(0), op.rank(0)
    if axis is None or shard is None or rank is None:
        return None
    axis = int(axis) % rank
    if axis == shard.axis:
        return None
    return Decision([AS_IS, REPLICATE], [shard.plain().at(shard.axis - (axis < shard.axis))])


@rule("Cumsum", "Cumprod", "CumulativeLogsumexp", "ReverseV2", "Roll")
def along_axes(op: Operation) -> Decision | None:
    """Go along other axes than that of the rows, which the last input names."""
    last = len(op.inputs) - 1
    axes, shard, rank = op.constant(last), op.shard(0), op.rank(0)
    if axes is None or shard is None or rank is None:
        return None
    if shard.axis in {int(a) % rank for a in np.ravel(axes)}:
        return None
    return Decision([AS_IS, *[REPLICATE] * last], [shard.plain()])
