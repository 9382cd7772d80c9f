"""Causes in random draws."""

import ast

import keras
import tensorflow as tf

from ... import _upstream
from ..comparison import Difference, compare
from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import calls_in, first, line_of_definition, line_of_operation, name_of_call
from ..step_graph import differing_constants, rows_of_draws
from ..training import train
from .build import draws_unseeded

_KERAS = "keras.random.* with seed=keras.random.SeedGenerator(...)"
_IN_VARIABLE = (
    "; keep what changes in a variable, self.add_weight(shape=(), trainable=False), and change it"
    " with assign"
)


def draws_without_seed(evidence: Evidence) -> Finding | None:
    """A training on one replica does not repeat itself."""
    if not evidence.again:
        return None
    begins = evidence.again[0]
    model = evidence.one.model
    places = [evidence.plan.build, type(model), *{type(layer) for layer in model.layers}]
    return Finding(
        name="draws_without_seed",
        text="the model draws random numbers that no seed repeats, so no two trainings are alike,"
        " on one replica neither",
        shown_by="one replica, trained twice after the same keras.utils.set_random_seed, differs"
        f" by {begins.largest:.1g} in {begins.name} from step {begins.step} on",
        fix=f"draw with {_KERAS}, or pass a seed to the generator",
        line=first(line for place in places for line in calls_in(place, draws_unseeded))
        or line_of_definition(type(model)),
    )


def stateful_draws(evidence: Evidence) -> list[Finding]:
    """`tf.random.uniform` and the like, whose state no other replica can read."""
    if evidence.traces is None:
        return []
    graph = evidence.traces[0]
    lines = dict.fromkeys(filter(None, map(line_of_operation, graph.stateful_draws())))
    if not lines and graph.has_inner_stateful_draws():
        lines = {"": None}
    changed = _with_other_draws(evidence) if lines else []
    if not changed:
        return []
    return [
        Finding(
            name="stateful_draws",
            text="tf.random's stateful draws have a state for each operation, which other replicas"
            " cannot read: each replica draws its own numbers",
            shown_by="the traced step has such an operation, and with another tf.random.set_seed"
            f" one replica differs from step {changed[0].step} on",
            fix=f"draw with {_KERAS}, or with tf.random.stateless_*",
            line=line,
        )
        for line in lines
    ]


def _with_other_draws(evidence: Evidence) -> list[Difference]:
    """What changes on one replica if such operations draw other numbers."""

    def seed_anew(model: keras.Model) -> None:
        del model  # whose weights, and Keras's own draws, have their seeds already
        tf.random.set_seed((evidence.plan.seed + 1) % 2**32)

    other = train(evidence.plan, name="one, other draws", change=seed_anew, scored=False)
    return compare(evidence.one.record, other.record, evidence.precision)


def python_while_tracing(evidence: Evidence) -> list[Finding]:
    """Python's or NumPy's random numbers, drawn while the step is traced."""
    if evidence.traces is None:
        return []
    one, other = evidence.traces
    constants = differing_constants(one, other)
    if not one.drew and not any(map(_is_fraction, constants)):
        return []
    lines = dict.fromkeys(map(line_of_operation, constants)) or {_drawing_line(evidence): None}
    return [
        Finding(
            name="python_draws",
            text="this number is drawn by Python or NumPy, or comes from a Python attribute that"
            " changes, when the step is traced, once for each replica: every replica computes with"
            " another number, and keeps it for good"
            if not one.drew
            else "Python or NumPy draws this number when the step is traced, once for each"
            " replica: every replica computes with another number, and keeps it for good",
            shown_by="two traces of the same step have different constants"
            if constants
            else "tracing the step drew from Python's or NumPy's random numbers",
            fix=f"draw with {_KERAS}" + _IN_VARIABLE * (not one.drew),
            line=line,
        )
        for line in lines
    ]


def _drawing_line(evidence: Evidence) -> str:
    """A line of a layer or a model that draws, where no number of the step comes from it."""
    model = evidence.one.model
    kinds = dict.fromkeys(type(one) for one in [*_upstream.flatten_layers(model), model])
    return first(line for kind in kinds for line in calls_in(kind, _draws_in_python))


def _draws_in_python(call: ast.Call) -> bool:
    return name_of_call(call).startswith(("random.", "np.random.", "numpy.random."))


def _is_fraction(operation: object) -> bool:
    import numpy as np

    value = tf.get_static_value(operation.outputs[0])  # type: ignore[attr-defined]
    array = np.asarray(value)
    return array.dtype.kind == "f" and bool(np.any(array != np.round(array)))


def draws_for_other_rows(evidence: Evidence) -> list[Finding]:
    """Draws for a part of the batch, whose shape does not show which samples they are for."""
    if evidence.traces_of_sizes is None:
        return []
    small, large = evidence.traces_of_sizes
    rows = max(1, evidence.plan.batches.batch_size // 2)
    operations = rows_of_draws(small, large, rows)
    lines = dict.fromkeys(filter(None, map(line_of_operation, operations)))
    return [
        Finding(
            name="draws_for_other_rows",
            text="random numbers are drawn for another number of rows than the batch has, so it"
            " is unknown which samples they are for, and replicas draw differently",
            shown_by="the rows of the draw are no multiple of those of the batch, in traces for"
            " two batch sizes",
            fix="draw for all samples, shape (batch, …), and choose from the result",
            line=line,
        )
        for line in lines
    ]
