"""`find_causes`: all causes that experiments show, those first that explain the others."""

import warnings
from collections.abc import Callable

from ..evidence import Evidence
from ..finding import Finding
from .batch_statistics import (
    mixing_layer,
    unsynchronized_batch_norm,
)
from .build import build_without_seed, module_level_model
from .draws import (
    draws_for_other_rows,
    draws_without_seed,
    python_while_tracing,
    stateful_draws,
)
from .metrics import metric_state
from .optimizers import python_optimizer_state
from .python_calls import python_function
from .refusals import crashed, refused, strategy_in_build
from .rounding import bias_before_batch_norm, float32_values, rounding_grows
from .state import differing_layer_state, python_attribute, written_value
from .steps import (
    changed_gradients,
    eager_step,
    number_of_rows,
    opaque_step,
    unread_loss,
    values_of_several_samples,
)
from .stored_rows import stored_rows

Cause = Callable[[Evidence], Finding | list[Finding] | None]

# Those that make trainings differ at random come first: with them, no other experiment is reliable.
CAUSES: tuple[tuple[Cause, ...], ...] = (
    (module_level_model, build_without_seed),
    (strategy_in_build, refused, crashed),
    (draws_without_seed,),
    (
        unsynchronized_batch_norm,
        mixing_layer,
        stateful_draws,
        python_while_tracing,
        python_attribute,
        draws_for_other_rows,
        opaque_step,
        eager_step,
        changed_gradients,
        number_of_rows,
        values_of_several_samples,
        stored_rows,
        written_value,
        differing_layer_state,
        metric_state,
        python_optimizer_state,
        bias_before_batch_norm,
        float32_values,
    ),
    (unread_loss, python_function, rounding_grows),
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
