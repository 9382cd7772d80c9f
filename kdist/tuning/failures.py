"""Why a trial failed, in a line."""

import os

import keras_tuner
import tensorflow as tf

from .parallel import ENDED_BY


def reason_of(error: BaseException) -> str:
    """Why a trial failed, in a line."""
    if isinstance(error, MemoryError | tf.errors.ResourceExhaustedError):
        return "out of memory"
    if isinstance(error, keras_tuner.FailedTrialError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]


def reason_in(message: str) -> str:
    """The last line of a trial's message, which is a traceback."""
    return message.strip().splitlines()[-1].partition("FailedTrialError: ")[2] or "no reason given"


def fail_if_it_ended_a_process(trial_id: str) -> None:
    """Fail the trial during which the process ended that this one has taken the place of.

    Raises:
        keras_tuner.FailedTrialError: It is this one.
    """
    ended, _, reason = os.environ.get(ENDED_BY, "").partition("=")
    if ended == trial_id:
        raise keras_tuner.FailedTrialError(reason)
