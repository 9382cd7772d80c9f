"""Recognize failed trials, and what ends the search, and explain them in one line."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

import keras_tuner

from ..errors import UserError
from ..files import full_disk_error
from ..user_model.functions import reason_of as explain
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


@contextlib.contextmanager
def end_at_full_disk(folder: str) -> Iterator[None]:
    """End the search if the block finds its disk full, as every further trial would fail.

    Args:
        folder: The one of the trials, for errors without a file name.

    Raises:
        SearchError: The disk is full.
    """
    try:
        yield
    except SearchError:
        raise
    except (Exception, SystemExit) as error:
        full = full_disk_error(error)
        if full is None:
            raise
        path = getattr(full, "filename", None) or folder
        raise SearchError(
            f"cannot write {path}, as the disk is full: free some space, and run the same command"
            " again"
        ) from error


def fail_if_it_ended_a_process(trial_id: str) -> None:
    """Fail the trial during which the previous process of this worker died.

    Raises:
        keras_tuner.errors.FailedTrialError: It is this trial.
    """
    ended, _, reason = os.environ.get(ENDED_BY, "").partition("=")
    if ended == trial_id:
        raise keras_tuner.errors.FailedTrialError(reason)
