"""Random numbers of the whole batch, as for dropout: a replica draws the numbers of its rows."""

from __future__ import annotations

import math

import tensorflow as tf

from ..op_types import DRAWS, types_in
from ..operation import NOT_READ, Decision, Operation, Tensors, rule
from ..placements import Shard
from ..stage import Stage
from .shapes import counted_axis

# Philox gives groups of 128 bits, and a counter skips groups. The draws of these types use one
# number of the stream for each value, so a replica can begin with the first number of its rows.
# Draws of all other types may need more numbers for some values (rejection), or have no counter: a
# replica draws all values and keeps its rows.
_SKIPS_NUMBERS = types_in("""
    StatelessRandomNormalV2 StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2
    StatelessRandomUniformV2
""")
# Draws with parameters, which may differ between rows.
_WITH_PARAMETERS = types_in("""
    StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
    StatelessRandomGammaV3 StatelessRandomPoisson
""")


@rule(*DRAWS, *_WITH_PARAMETERS)
def draw_rows(op: Operation) -> Decision | None:
    """Draw a replica's rows of the numbers that a single device would draw."""
    found = counted_axis(op, 0)
    if found is None:
        return None
    axis, rows = found
    if axis:
        return None
    shape = op.sizes_in(0)
    op.set_dims(op.outputs[0], shape.tolist())
    inner = math.prod(shape[1:].tolist())
    dtype = op.outputs[0].dtype
    group = 16 // max(dtype.size, 4)
    out = Shard(0, rows)
    forms = op.whole_but({0: NOT_READ})

    def draw_whole(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        whole = stage.size_vector(shape.tolist(), op.inputs[0].dtype)
        (drawn,) = stage.copy_operation(op, [whole, *inputs[1:]])
        return [stage.slice_rows(drawn, out)]

    if op.type not in _SKIPS_NUMBERS or dtype.size not in (2, 4, 8) or inner == 0:
        return Decision(forms, [out], draw_whole, needs=[rows])

    def draw_local_rows(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        if stage.draws_by_xla and op.type == "StatelessRandomNormalV2":
            # XLA computes normals in pairs, along any axis of even size of the whole tensor.
            return draw_whole(stage, op, inputs)
        _, key, counter, *rest = inputs
        with stage.on_host():
            numbers_per_row = stage.write_size(inner, tf.int64)
        aligned = isinstance(inner, int) and inner % group == 0
        parts = []
        for count, first in stage.global_row_blocks(rows, tf.int32):
            with stage.on_host():
                begin = tf.cast(first, tf.int64) * numbers_per_row
                count = tf.cast(count, tf.int64) * numbers_per_row
                skipped = tf.cast(begin // group, counter.dtype)
                start = counter + tf.stack([skipped, tf.zeros_like(skipped)])
                size = tf.reshape(count if aligned else count + group - 1, [1])
                begin, count = tf.reshape(begin % group, [1]), tf.reshape(count, [1])
            (drawn,) = stage.copy_operation(op, [size, key, start, *rest])
            if not aligned:
                drawn = tf.slice(drawn, begin, count)
            parts.append(drawn)
        drawn = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
        return [tf.reshape(drawn, stage.size_vector(shape.tolist(), tf.int32, {0: rows}))]

    return Decision(forms, [out], draw_local_rows, needs=[rows])


@rule("StatelessMultinomial")
def draw_classes(op: Operation) -> Decision | None:
    """Draw the classes of all rows, from consecutive numbers, and keep a replica's rows."""
    shard = op.shard(0)
    if shard is None or shard.axis:
        return None
    out = shard.as_plain()

    def draw_and_slice(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        (drawn,) = stage.copy_operation(op, inputs)
        return [stage.slice_rows(drawn, out)]

    return Decision(op.whole_but({}), [out], draw_and_slice, needs=[shard.rows])
