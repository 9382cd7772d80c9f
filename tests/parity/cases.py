"""Every case of the parity battery, by name."""

import input_cases
import loss_cases
import model_cases
import optimizer_cases

CASES = {
    **model_cases.CASES,
    **optimizer_cases.CASES,
    **loss_cases.CASES,
    **input_cases.CASES,
}

# Cases that fail today, each with its reason; a test fails when one of them holds again.
KNOWN_FAILURES = {
    "own_logs_uneven": "a figure that an overridden compute_metrics derives from a metric's result"
    " is derived on each replica from its own part of it",
}
