"""`StepGraph`: the operations of a training step, with the user's lines that made them."""

import dataclasses
import itertools
import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .source_lines import line_of_operation

_FUNCTIONS = ("PyFunc", "PyFuncStateless", "EagerPyFunc", "NumpyFunction")
_STATEFUL = (
    "RandomUniform",
    "RandomUniformInt",
    "RandomStandardNormal",
    "TruncatedNormal",
    "ParameterizedTruncatedNormal",
    "RandomShuffle",
    "RandomGamma",
    "RandomPoisson",
    "RandomPoissonV2",
    "Multinomial",
    "StatefulUniform",
    "StatefulUniformFullInt",
    "StatefulUniformInt",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    "StatefulRandomBinomial",
    "RngReadAndSkip",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepGraph:
    """A traced step.

    Attributes:
        operations: Those of its graph, without those of functions that it calls.
        inner: Types of the operations of these functions.
        drew: Whether Python's or NumPy's global random numbers were drawn while it was traced.
    """

    operations: list[Any]
    inner: frozenset[str]
    drew: bool

    def stateful_draws(self) -> list[Any]:
        """Operations that draw random numbers from a state of their own."""
        return [op for op in self.operations if op.type in _STATEFUL]

    def has_inner_stateful_draws(self) -> bool:
        """Whether a function, loop or condition inside the step draws from a state of its own."""
        return bool(self.inner.intersection(_STATEFUL))

    def draws(self) -> list[Any]:
        """Operations that draw random numbers from a seed that they are given."""
        return [op for op in self.operations if op.type.startswith("StatelessRandom")]

    def python_functions(self) -> list[Any]:
        """Operations that call Python."""
        return [op for op in self.operations if op.type in _FUNCTIONS]

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
    inner = {
        node.op for function in graph.as_graph_def().library.function for node in function.node_def
    }
    return StepGraph(
        operations=list(graph.get_operations()),
        inner=frozenset(inner),
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


def rows_of_draws(small: StepGraph, large: StepGraph, rows: int) -> list[Any]:
    """Return draws whose number of rows follows the batch, but is no multiple of it.

    Args:
        small: The step, traced for a batch of this many rows.
        large: The same step for twice as many.
        rows: Their number.
    """
    odd = []
    for a, b in zip(small.draws(), large.draws(), strict=False):
        shapes = a.outputs[0].shape, b.outputs[0].shape
        if not all(shape.rank for shape in shapes):
            continue
        is_unknown = shapes[0][0] is None
        varies = shapes[0].as_list() != shapes[1].as_list()
        first = None if is_unknown else shapes[0][0]
        if is_unknown or (varies and (not first or first % rows or shapes[1][0] == first)):
            odd.append(a)
    return odd
