"""Texts and rows of different lengths; a row's values are on the replica that has the row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..operation import LOCAL, NOT_READ, Decision, Form, Operation, Rewrite, Tensors, rule
from ..placements import REPLICATE, Partial, Shard
from ..replica_reductions import MAXIMUM
from ..rows import Rows
from ..sizes import BatchAxis, Element, as_size
from ..stage import Stage
from .indexing import move_places
from .shapes import may_be_minus_one


@rule("StringSplit", "StringSplitV2")
def split_texts(op: Operation) -> Decision | None:
    """Split each text into words: a sparse matrix, with a row for each text."""
    shard = op.shard(0)
    if shard is None or len(shard.rows.segments) != 1 or op.in_body:
        return None
    places, words, shape = op.outputs
    found = Rows(((BatchAxis(f"the words of {words.name}", source=(words, 0)), 1),))
    op.name_rows(places, shard.rows)
    op.name_rows(shape, shard.rows)

    def split_local_texts(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        places, words, shape = stage.copy_operation(op, inputs)
        total = stage.write_size(shard.rows.total, shape.dtype)
        return [move_places(stage, shard.rows, places), words, tf.stack([total, shape[1]])]

    out = Shard(0, found)
    results = [out, out, Partial(MAXIMUM)]
    return Decision(op.whole_but({0: LOCAL}), results, split_local_texts, needs=[shard.rows])


@rule("SparseCross")
def cross_features(op: Operation) -> Decision | None:
    """Cross the features of each sample, if all are dense."""
    if op.attr("N") or not op.any_shard:
        return None
    main = next(p for p in op.placements if isinstance(p, Shard))
    widths = [tensor.shape[1] for tensor in op.inputs]
    if main.axis or len(main.rows.segments) != 1 or None in widths:
        return None
    width = math.prod(widths)
    places, _, shape = op.outputs
    op.name_rows(places, main.rows)
    longest = as_size(Element(shape, 1, is_size=True))  # Without samples, the width is 0.
    op.set_sizes(shape, np.array([main.rows.total, longest], object))

    def cross_local_samples(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        places, values, shape = stage.copy_operation(op, inputs)
        total = stage.write_size(main.rows.total, shape.dtype)
        shape = tf.stack([total, tf.where(total > 0, tf.cast(width, shape.dtype), 0)])
        return [move_places(stage, main.rows, places), values, shape]

    forms = [op.rows_form(index, main) for index in range(len(op.inputs))]
    out = Shard(0, main.rows.multiply(width))
    return Decision(forms, [out, out, REPLICATE], cross_local_samples, needs=[main.rows])


@rule("SparseToDense")
def to_dense(op: Operation) -> Decision | None:
    """Put values into a matrix; a row is on the replica that has the row's values."""
    places, values, shape = op.shard(0), op.shard(2), op.sizes_in(1)
    rows, counted = op.named_rows(0), op.named_rows(1)
    if rows is None or places is None or values is None or not values.fits(places):
        return None
    if rows != counted and (shape is None or not rows.is_total(shape[0])):
        return None

    def fill_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        places, shape, *rest = inputs
        own = tf.concat([[stage.local_count(rows, shape.dtype)], shape[1:]], 0)
        return stage.copy_operation(op, [move_places(stage, rows, places, -1), own, *rest])

    return Decision(
        [LOCAL, REPLICATE, LOCAL, REPLICATE],
        [Shard(0, rows)],
        fill_local_rows,
        needs=[rows],
    )


@rule("RaggedTensorToTensor")
def pad_rows(op: Operation) -> Decision | Rewrite | None:
    """Pad rows, from values with the index of their row; without a width, to the longest row."""
    if op.attr("row_partition_types") != [b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"]:
        return None
    values, ids, shape, rank = op.shard(1), op.shard(4), op.sizes_in(0), op.rank(1)
    if values is None or ids is None or shape is None or rank is None or not values.fits(ids):
        return None
    rows, count = ids.within, op.sizes_in(3)
    if rows is None or len(rows.segments) != 1 or not rows.is_total(count.item()):
        return None
    sizes = shape.tolist() if shape.ndim else [-1] * (rank + 1)
    if sizes[0] != -1 and not rows.is_total(sizes[0]):
        return None
    if sizes[1] == -1:
        return Rewrite(lambda: _with_width(op.op, rank - 1))
    if may_be_minus_one(sizes[1]):
        return None

    def pad_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        shape, values, default, _, ids = inputs
        ((own, first),) = stage.row_blocks(rows, ids.dtype)
        shape = tf.concat([tf.cast([own], shape.dtype), shape[1:]], 0)
        return stage.copy_operation(op, [shape, values, default, own, ids - first])

    forms: list[Form] = [REPLICATE, LOCAL, REPLICATE, NOT_READ, LOCAL]
    return Decision(forms, [Shard(0, rows)], pad_local_rows, needs=[rows])


def _with_width(op: Any, inner: int) -> Sequence[Any]:
    shape, values, default, count, ids = op.inputs
    width = tf.cast(tf.maximum(longest_row(ids), 0), shape.dtype)
    made = tf.raw_ops.RaggedTensorToTensor(
        shape=tf.stack([tf.constant(-1, shape.dtype), width] + [-1] * inner),
        values=values,
        default_value=default,
        row_partition_tensors=[count, ids],
        row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
    )
    made.set_shape(op.outputs[0].shape)
    return [made]


@tf.function(autograph=False, experimental_implements="longest_row")
def longest_row(ids: Any) -> Any:
    """Return the number of values of the longest row, from the row of each value."""
    _, _, counts = tf.unique_with_counts(ids)
    return tf.reduce_max(tf.pad(counts, [[0, 1]]))


@rule("kernel:longest_row")
def _longest_row(op: Operation) -> Decision | None:
    shard = op.shard(0)
    if shard is None or shard.within is None:
        return None
    return Decision(
        [LOCAL], [Partial(MAXIMUM)], lambda stage, op, inputs: stage.write_kernel(op, inputs)
    )
