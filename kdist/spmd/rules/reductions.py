"""Reductions over axes; over the axis of the rows, every replica has a part of the result."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

from ..operation import LOCAL, NOT_READ, Decision, Operation, Rewrite, Tensors, rule
from ..placements import PARTIAL, REPLICATE, Partial, Replicate, Shard
from ..replica_reductions import ALL, ANY, MAXIMUM, MINIMUM, PRODUCT, SUM, Moments
from ..sizes import AnySize, BatchAxis, Size, batch_axes_in, symbols_in
from ..stage import Stage
from ..tensor_facts import TensorFacts

REDUCTION_OF_TYPE = {
    "Sum": SUM,
    "Mean": SUM,
    "Max": MAXIMUM,
    "Min": MINIMUM,
    "Prod": PRODUCT,
    "All": ALL,
    "Any": ANY,
}


@rule(*REDUCTION_OF_TYPE)
def reduction(op: Operation) -> Decision | Rewrite | None:
    """Reduce over known axes, or over axes that broadcasting has added."""
    rank, keep = op.rank(0), op.attr("keep_dims")
    if rank is None:
        return None
    if op.type == "Prod" and (number := _known_product(op)) is not None:

        def write_number(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
            return [stage.write_size(number, op.outputs[0].dtype)]

        return Decision([NOT_READ, NOT_READ], [REPLICATE], write_number, needs=[number])
    found = _find_axes(op, rank)
    shard = op.shard(0)
    if shard is None:
        # The mean of integers is rounded, so it is not linear.
        kinds = ("Sum",) if op.inputs[0].dtype.is_integer else ("Sum", "Mean")
        linear = op.type in kinds and op.is_partial(0, SUM) and found is not None
        return Decision([PARTIAL, REPLICATE], [PARTIAL]) if linear else None
    if found is None:
        return None
    axes, unknown = found
    dims = op.dims(0)
    if dims is not None and not unknown:
        sizes = [1 if axis in axes else size for axis, size in enumerate(dims)]
        kept = [size for axis, size in enumerate(sizes) if keep or axis not in axes]
        op.complete_dims(op.outputs[0], kept)
    if shard.axis in unknown or (not keep and any(u < shard.axis for u in unknown)):
        return None
    write = _reduce_added_axes(op, axes, unknown, keep)
    if shard.axis not in axes:
        axis = shard.axis if keep else shard.axis - sum(a < shard.axis for a in axes)
        return Decision([LOCAL, LOCAL], [Shard(axis, shard.rows, shard.uniform)], write)
    if op.type != "Mean":
        return Decision([LOCAL, LOCAL], [Partial(REDUCTION_OF_TYPE[op.type])], write)
    return _rewrite_moment(op, axes) or _divide_mean(op, axes, shard, keep)


def _known_product(op: Operation) -> AnySize | None:
    """Return the product of a shape, if it follows from the numbers of rows."""
    sizes = op.sizes_in(0)
    if sizes is None or sizes.ndim != 1 or op.outputs[0].shape.rank != 0:
        return None
    number: AnySize = math.prod(sizes.tolist())
    follows = all(isinstance(symbol, BatchAxis) for symbol in symbols_in(number))
    return number if follows else None


def _divide_mean(op: Operation, axes: set[int], shard: Shard, keep: bool) -> Decision | None:
    """Divide the sum of a replica's values by the number of all values."""
    if not op.inputs[0].dtype.is_floating:
        return None
    dims: Any = op.dims(0)
    count: AnySize = math.prod(dims[a] for a in axes)

    def divide_by_total(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        x, dtype = inputs[0], inputs[0].dtype
        if dtype.size < 4:  # The sum may overflow, and the number of values may be inexact.
            x = tf.cast(x, tf.float32)
        total = tf.reduce_sum(x, sorted(axes), keepdims=keep)
        return [tf.cast(total / stage.write_size(count, total.dtype), dtype)]

    return Decision([LOCAL, LOCAL], [PARTIAL], divide_by_total, needs=[count])


def _rewrite_moment(op: Operation, axes: set[int]) -> Rewrite | None:
    """Compute mean and variance of the same values together, as in `tf.nn.moments`.

    So the variance does not wait for the mean of all values: each replica takes the squared
    distances from its own mean, and the moments of all replicas are merged as in Chan, Golub &
    LeVeque 1983.
    """
    x = op.op.inputs[0]
    if op.in_body or x.dtype.size < 4:
        return None
    if (mean := _find_mean_of_variance(op.facts, op.op)) is not None:
        made = op.facts.resolve_alias(mean.outputs[0])
        return None if made is mean.outputs[0] else Rewrite(lambda: [made.op.outputs[1]])
    later = [op.op]
    for _ in range(3):  # the steps from a mean to its variance
        later = [user for each in later for t in each.outputs for user in t.consumers()]
    if not any(_find_mean_of_variance(op.facts, user) is op.op for user in later):
        return None
    return Rewrite(lambda: [tf.unstack(moments(x, tf.constant(sorted(axes))))[0]])


def _find_mean_of_variance(facts: TensorFacts, op: Any) -> Any:
    """Return the mean in `mean(squared_difference(x, stop_gradient(mean(x))))`, else `None`.

    `op` is the outer mean; both are over the same axes, which they keep.
    """
    chain = [op]
    for kind, index in (("Mean", 0), ("SquaredDifference", 1), ("StopGradient", 0), ("Mean", 0)):
        if chain[-1].type != kind:
            return None
        chain.append(chain[-1].inputs[index].op)
    _, squares, _, mean, _ = chain
    axes, others = (facts.constant_of(each.inputs[1]) for each in (op, mean))
    is_same = axes is not None and np.array_equal(axes, others)
    keeps_axes = op.get_attr("keep_dims") and mean.get_attr("keep_dims")
    values, squared = (facts.resolve_alias(each.inputs[0]) for each in (mean, squares))
    return mean if is_same and keeps_axes and values is squared else None


@tf.function(autograph=False, experimental_implements="moments")
def moments(x: Any, axes: Any) -> Any:
    """Return mean and variance, stacked, over axes that stay with size 1."""
    mean = tf.reduce_mean(x, axes, keepdims=True)
    return tf.stack([mean, tf.reduce_mean(tf.math.squared_difference(x, mean), axes, True)])


@rule("kernel:moments")
def _moments(op: Operation) -> Decision | None:
    shard, axes = op.shard(0), op.constant(1)
    if shard is None or axes is None or shard.axis not in axes:
        return None
    return Decision(
        [LOCAL, REPLICATE],
        [Partial(Moments(shard.rows))],
        lambda stage, op, inputs: stage.write_kernel(op, inputs),
        needs=[shard.rows],
    )


def _find_axes(op: Operation, rank: int) -> tuple[set[int], set[int]] | None:
    """Return the axes that are reduced, and the axes that may be reduced."""
    value = op.constant(1)
    if value is not None:
        return _normalize_axes(value, rank), set()
    broadcast, first = _find_broadcast_axes(op)
    found = op.facts.reduced_axes.get(broadcast.ref())
    return None if found is None else tuple({first + a for a in axes} for axes in found)  # type: ignore[return-value]


def _normalize_axes(axes: Any, rank: int) -> set[int]:
    return {int(a) % rank for a in np.atleast_1d(axes)} if rank else set()


def _find_broadcast_axes(op: Operation) -> tuple[Any, int]:
    """Return the axes that broadcasting has added, and a constant that is added to each axis."""
    axes = op.inputs[1]
    if axes.op.type != "AddV2":
        return axes, 0
    offset, other = (op.facts.resolve_alias(t) for t in axes.op.inputs)
    first = op.facts.constant_of(offset)  # The gradient of an equation with `...` adds a constant.
    is_count = first is not None and np.shape(first) == () and first >= 0
    return (other, int(first)) if is_count else (axes, 0)


def _reduce_added_axes(op: Operation, axes: set[int], unknown: set[int], keep: bool) -> Any:
    """Return a function that reduces over axes that broadcasting has added; `None` for constants.

    `BroadcastGradientArgs` names all axes of size 1, even the axis of a batch of a single row. A
    sum over this axis changes nothing on a single device, but is wrong on a replica without rows.
    So the axes are computed again, for shapes with a batch of two rows.
    """
    broadcast, first = _find_broadcast_axes(op)
    source = broadcast.op
    if source.type != "BroadcastGradientArgs":
        return None
    reduce = {"Sum": tf.reduce_sum, "Mean": tf.reduce_mean}[op.type]
    if not unknown:
        return lambda stage, op, inputs: [reduce(inputs[0], sorted(axes), keepdims=keep)]
    vectors = [op.facts.sizes_in(t) for t in source.inputs]
    index = broadcast.value_index

    def reduce_added_axes(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        shapes: list[list[Any]] = [[], []]
        for axis in range(-max(map(len, vectors)), 0):
            place = axis + max(map(len, vectors))
            if first + place in unknown:
                pair = [v[axis] if -axis <= len(v) else 1 for v in vectors]
            else:
                pair = [1 if first + place in axes else 2] * 2
                pair[1 - index] = 2
            for shape, size in zip(shapes, pair, strict=True):
                shape.append(stage.write_size(size, "int32"))
        found = tf.raw_ops.BroadcastGradientArgs(s0=tf.stack(shapes[0]), s1=tf.stack(shapes[1]))[
            index
        ]
        return [reduce(inputs[0], first + found, keepdims=keep)]

    return reduce_added_axes


@rule("BroadcastGradientArgs")
def broadcast_axes(op: Operation) -> Decision | None:
    """Note the axes that the gradients of a broadcast sum over."""
    vectors = [op.sizes_in(0), op.sizes_in(1)]
    if all(v is not None for v in vectors):
        longest = max(map(len, vectors))
        for index, output in enumerate(op.outputs):
            reduced, unknown = set(), set()
            for back in range(1, longest + 1):
                mine, other = (
                    v[-back] if back <= len(v) else 1 for v in (vectors[index], vectors[1 - index])
                )
                if mine == 1:
                    reduced.add(longest - back)
                elif isinstance(mine, Size) and not batch_axes_in(mine) and mine != other:
                    unknown.add(longest - back)
            op.facts.reduced_axes[output.ref()] = (reduced, unknown)
    if not all(isinstance(p, Replicate) for p in op.placements):
        return None
    return Decision([REPLICATE, REPLICATE], [REPLICATE, REPLICATE])


@rule("L2Loss")
def l2_loss(op: Operation) -> Decision | None:
    """Sum half of the squares."""
    division = op.facts.variable_shard(op.inputs[0])
    if op.is_partial(0, SUM) and division is not None:
        return Decision([division], [PARTIAL])
    return None if op.shard(0) is None else Decision([LOCAL], [PARTIAL])


@rule("ArgMax", "ArgMin", "ReduceJoin")
def reduce_undivided_axes(op: Operation) -> Decision | None:
    """Reduce along axes that are not divided; a join of texts without any axis joins all texts."""
    axes, shard, rank = op.constant(1), op.shard(0), op.rank(0)
    if axes is None or shard is None or rank is None:
        return None
    reduced = _normalize_axes(axes, rank)
    if not reduced or shard.axis in reduced:
        return None
    keeps_axes = op.type == "ReduceJoin" and op.attr("keep_dims")
    before = 0 if keeps_axes else sum(axis < shard.axis for axis in reduced)
    return Decision([LOCAL, REPLICATE], [shard.as_plain().on_axis(shard.axis - before)])


@rule("Cumsum", "Cumprod", "CumulativeLogsumexp", "ReverseV2", "Roll")
def compute_along_axes(op: Operation) -> Decision | None:
    """Compute along the axes in the last input, if they are not divided."""
    last = len(op.inputs) - 1
    axes, shard, rank = op.constant(last), op.shard(0), op.rank(0)
    if axes is None or shard is None or rank is None:
        return None
    if shard.axis in _normalize_axes(axes, rank):
        return None
    return Decision([LOCAL, *[REPLICATE] * last], [shard.as_plain()])
