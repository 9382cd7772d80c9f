"""`StepGraph`: the operations of a training step, with the user's lines that made them."""

import dataclasses
import itertools
import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .source_lines import line_of_operation


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepGraph:
    """A traced step.

    Attributes:
        operations: Those of its graph, without those of functions that it calls.
        drew: Whether Python's or NumPy's global random numbers were drawn while it was traced.
    """

    operations: list[Any]
    drew: bool

    def in_float32(self) -> list[Any]:
        """Operations of the user's lines with results of less precision than float64."""
        low = (tf.float32, tf.float16, tf.bfloat16)
        return [
            op
            for op in self.operations
            if any(out.dtype in low for out in op.outputs) and line_of_operation(op)
        ]


def trace_step(model: keras.Model, data: Any) -> StepGraph:
    """Trace the training step of a model that was made without a strategy.

    Args:
        model: The model, its optimizer built.
        data: A batch of tensors.
    """
    before = random.getstate(), np.random.get_state()
    step = tf.function(lambda batch: model.train_step(batch), reduce_retracing=False)
    graph = step.get_concrete_function(data).graph
    after = random.getstate(), np.random.get_state()
    return StepGraph(
        operations=list(graph.get_operations()),
        drew=before[0] != after[0] or not _same(before[1], after[1]),
    )


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def differing_constants(one: StepGraph, other: StepGraph) -> list[Any]:
    """Return constants of the user's lines that are not the same in two traces of one step.

    Where the traces have other operations from some place on, only those before it are compared.
    """
    pairs = zip(one.operations, other.operations, strict=False)
    return [
        b
        for a, b in itertools.takewhile(lambda pair: pair[0].type == pair[1].type, pairs)
        if a.type == "Const" and a.get_attr("value") != b.get_attr("value") and line_of_operation(b)
    ]
