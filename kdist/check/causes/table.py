"""`find_causes`: all causes that experiments show, those first that explain the others."""

import warnings
from collections.abc import Callable

from ..evidence import Evidence
from ..finding import Finding
from .build import build_without_seed, module_level_model
from .draws import draws_without_seed, python_attribute, python_while_tracing
from .optimizers import python_optimizer_state
from .refusals import crashed, refused, strategy_in_build
from .rounding import float32_values, rounding_grows

Cause = Callable[[Evidence], Finding | list[Finding] | None]

# Those that make trainings differ at random come first: with them, no other experiment is reliable.
CAUSES: tuple[tuple[Cause, ...], ...] = (
    (module_level_model, build_without_seed),
    (strategy_in_build, refused, crashed),
    (draws_without_seed,),
    (python_while_tracing, python_attribute, python_optimizer_state, float32_values),
    (rounding_grows,),
)


def find_causes(evidence: Evidence) -> list[Finding]:
    """Return the causes of the differences; empty if none is known.

    A group of causes is only asked if those before it have found nothing.

    Args:
        evidence: A training that differs from that on one replica.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trainings have given them before
        for group in CAUSES:
            found: list[Finding] = []
            for cause in group:
                finding = cause(evidence)
                found += finding if isinstance(finding, list) else [finding] if finding else []
            if found:
                return found
    return []
