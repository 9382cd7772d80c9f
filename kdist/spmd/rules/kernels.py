"""kdist's own kernels: functions with a name (`experimental_implements`), each with a rule."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ..operation import Decision, Operation, Tensors, rule
from ..placements import PARTIAL, REPLICATE, Partial, Shard
from ..reduction import COUNTED_MOMENTS
from ..stage import Stage


def kernel_rule(name: str, rows: Sequence[int], out: Partial | None = None) -> None:
    """Register the rule of a kernel that computes each sample on its own, or sums over them.

    Args:
        name: The kernel's name.
        rows: Indices of inputs with the samples along their first axis; indices beyond the last
            input are ignored.
        out: The partial placement of the first result; `None` if the result has the samples along
            its first axis.
    """

    @rule(f"kernel:{name}")
    def decide(op: Operation) -> Decision | None:
        data = [index for index in rows if index < len(op.inputs)]
        main = op.first_shard(data)
        if main is None or main.axis != 0:
            return None
        forms = op.whole_but({index: op.rows_form(index, main) for index in data})

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
