"""kdist's own kernels: functions with a name (`experimental_implements`), each with a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..operation import LOCAL, Decision, Form, Operation, Tensors, rule
from ..placements import PARTIAL, REPLICATE, Partial, Shard
from ..reduction import COUNTED_MOMENTS
from ..stage import Stage


def kernel_rule(name: str, rows: Sequence[int], out: Partial | None = None) -> None:
    """Register the rule of a kernel that computes each sample on its own, or sums over them.

    Args:
        name: The kernel's name.
        rows: Its inputs that have the samples along their first axis, if it has so many inputs.
        out: How its first result is partial; `None` if it has the samples along its first axis.
    """

    @rule(f"kernel:{name}")
    def decide(op: Operation) -> Decision | None:
        data = [index for index in rows if index < len(op.inputs)]
        main = next((op.shard(i) for i in data if op.shard(i) is not None), None)
        if main is None or main.axis != 0:
            return None
        forms: list[Form] = [REPLICATE] * len(op.inputs)
        for index in data:
            forms[index] = op.rows_form(index, main)

        def call_kernel(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
            made = stage.call_kernel(op, inputs)
            if out is None:
                return made
            has_rows = tf.shape(inputs[data[0]])[0] > 0
            return [tf.where(has_rows, made[0], tf.zeros_like(made[0])), *made[1:]]

        first = out or Shard(0, main.rows)
        return Decision(forms, [first, *[REPLICATE] * (len(op.outputs) - 1)], call_kernel)


kernel_rule("Kernels.local_moments", rows=[0, 1], out=Partial(COUNTED_MOMENTS))
kernel_rule("Kernels.normalize", rows=[0])
kernel_rule("Kernels.gradient_sums", rows=[0, 1], out=PARTIAL)
kernel_rule("Kernels.input_gradient", rows=[0, 1, 7])


@tf.function(autograph=False, experimental_implements="part_norms")
def part_norms(rows: Any, *gradients: Any) -> Any:
    """Return how long the gradients are of the parts of a batch that the replicas have.

    Args:
        rows: The batch, shape `(samples, ...)`.
        gradients: The gradients of a mean over its samples.

    Returns:
        Sums over replicas that have samples: the squared norm of the mean of the gradients of the
        replica's samples, 1 / their number, and 1; float64, shape `(3,)`.
    """
    squares = tf.add_n([squared_norm(gradient) for gradient in gradients])
    return tf.stack([squares, 1 / tf.shape(rows)[0], tf.ones((), "float64")])


@rule("kernel:part_norms")
def _part_norms(op: Operation) -> Decision | None:
    shard = op.shard(0)
    partial = [placement == PARTIAL for placement in op.placements[1:]]
    if shard is None or shard.axis != 0 or not all(partial):
        return None

    def write_norms(stage: Stage, op: tf.Operation, inputs: Tensors) -> Tensors:
        count = stage.local_count(shard.rows, "float64")
        share = count / stage.size(shard.rows.total, "float64")
        squares = tf.add_n([squared_norm(gradient) for gradient in inputs[1:]])
        norms = tf.stack([squares / tf.square(share), 1 / count, tf.ones((), "float64")])
        return [tf.where(count > 0, norms, tf.zeros_like(norms))]

    return Decision([LOCAL] * len(op.inputs), [PARTIAL], write_norms, needs=[shard.rows])


def squared_norm(tensor: Any) -> Any:
    """Return the sum of a tensor's squares, in float64."""
    return tf.cast(tf.reduce_sum(tf.square(tensor)), "float64")
