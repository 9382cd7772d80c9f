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
