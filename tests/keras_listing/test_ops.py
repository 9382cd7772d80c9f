"""Every function of `keras.ops`, of a batch that is divided over replicas."""

import keras
import numpy as np
import op_samples
import pytest
from compared import ROUNDED, Expressions, calls_of, failures, grouped, tolerance_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("float64", "without_graph_optimizer_in_module"),
]

CALLS = calls_of("op_calls.txt", op_samples.functions(), op_samples.guessed)
NAMES = {name: one for name, one in vars(keras.ops).items() if name[0] != "_"} | {
    "s_": np.s_,
    "one32": np.ones(2, "float32"),
}


def step_of(expressions):
    return Expressions(expressions, NAMES)


def tolerance(expression):
    is_rounded = expression.split("(")[0] in op_samples.ROUNDED
    return ROUNDED if is_rounded else tolerance_of(expression)


def test_every_function_has_a_sample_input():
    assert not [name for name, calls in CALLS.items() if not calls], (
        "add a line to op_calls.txt for each"
    )


@pytest.mark.parametrize(
    "names", grouped(CALLS, 120, op_samples.KNOWN_ROWS), ids=lambda names: f"{names[0]}-{names[-1]}"
)
def test_functions_of_divided_batches_are_those_of_whole_ones(names):
    known = names[0] in op_samples.KNOWN_ROWS
    expressions = [call for name in names for call in CALLS[name]]
    found = failures(step_of, expressions, op_samples.INPUTS, tolerance, known)
    assert not found, "\n" + "\n".join(found)
