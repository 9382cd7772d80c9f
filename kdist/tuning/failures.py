"""Recognize failed trials and explain them in one line."""

import math
import os
from collections.abc import Mapping
from numbers import Real
from typing import Any

import keras_tuner

from ..errors import UserError
from ..user_model.code_errors import reason_of as explain
from .parallel import ENDED_BY


class SearchError(UserError, keras_tuner.errors.FatalError):
    """A mistake that every trial would repeat: it ends the search."""


def reason_of(error: BaseException) -> str:
    """Explain in one line why a trial failed."""
    return explain(error, plain=(keras_tuner.errors.FailedTrialError,))


def fail_unless_finite(results: Any, objective: str) -> None:
    """Fail a trial whose objective is NaN or infinite.

    Args:
        results: What `keras_tuner.Tuner.run_trial` returned.
        objective: The name of its objective.

    Raises:
        keras_tuner.FailedTrialError: The objective is not finite.
    """
    for result in results if isinstance(results, list) else [results]:
        value = result.get(objective) if isinstance(result, Mapping) else result
        if isinstance(value, Real) and not math.isfinite(value):
            raise keras_tuner.errors.FailedTrialError(f"{objective} was {value:g}")


def fail_if_it_ended_a_process(trial_id: str) -> None:
    """Fail the trial during which the previous process of this worker died.

    Raises:
        keras_tuner.errors.FailedTrialError: It is this trial.
    """
    ended, _, reason = os.environ.get(ENDED_BY, "").partition("=")
    if ended == trial_id:
        raise keras_tuner.errors.FailedTrialError(reason)
