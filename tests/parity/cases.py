"""Every case of the parity battery, by name."""

import custom_cases
import draw_cases
import input_cases
import loss_cases
import model_cases
import optimizer_cases

CASES = {
    **model_cases.CASES,
    **optimizer_cases.CASES,
    **loss_cases.CASES,
    **input_cases.CASES,
    **custom_cases.CASES,
    **draw_cases.CASES,
}

# Of these, stock Keras is trained in a graph: without one, it gives all batches the same weight in
# the logged loss of each output. The others are the same without one, and tracing a graph takes
# longer than so few steps.
IN_A_GRAPH = {
    "two_heads_uneven",
    "two_heads_weighted",
    "listed_inputs_and_losses",
    "named_inputs_and_losses",
}
