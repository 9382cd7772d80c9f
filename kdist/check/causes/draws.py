"""Causes in random draws, and in numbers that Python computes while the step is traced."""

import ast

import tensorflow as tf

from ... import _upstream
from ..evidence import Evidence
from ..finding import Finding
from ..source_lines import calls_in, first, line_of_definition, line_of_operation, name_of_call
from ..step_graph import differing_constants
from .build import draws_unseeded
from .optimizers import counting_line

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
            " changes, when the step is traced: another number in each training, which stays"
            if not one.drew
            else "Python or NumPy draws this number when the step is traced: another number in each"
            " training, which stays",
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


def python_attribute(evidence: Evidence) -> list[Finding]:
    """A Python attribute that changes while the step is traced, such as a counter."""
    if evidence.traces is None:
        return []
    one, other = evidence.traces
    if one.drew or counting_line(evidence):
        return []
    # Fractions may be drawn instead.
    known = {finding.line for finding in python_while_tracing(evidence)}
    found: list[Finding] = []
    for operation in differing_constants(one, other):
        line = line_of_operation(operation)
        if line and line not in known and not any(finding.line == line for finding in found):
            found.append(
                Finding(
                    name="python_attribute",
                    text="this number comes from a Python attribute that changes when the step is"
                    " traced, not once a step",
                    shown_by="two traces of the same step have different constants",
                    fix="keep it in a variable: self.add_weight(shape=(), trainable=False), and"
                    " change it with assign",
                    line=line,
                )
            )
    return found
