"""What a trial scores: its best epoch, or the seconds to a target, also if it misses that."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import keras_tuner

from ..callbacks.stop_at_accuracy import StopAtAccuracy
from ..errors import UserError


class SearchError(UserError, keras_tuner.errors.FatalError):
    """A mistake that every trial would repeat: it ends the search."""


def best_epoch(
    history: Mapping[str, Sequence[float]], objective: keras_tuner.Objective
) -> dict[str, float]:
    """Return the metrics of the best epoch by `objective`.

    Raises:
        SearchError: The metric is not in the history.
    """
    if not history.get(objective.name):
        raise SearchError(missing_metric(objective.name, history))
    values = history[objective.name]
    sign = 1 if objective.direction == "max" else -1
    epoch = max(
        range(len(values)), key=lambda i: -math.inf if math.isnan(values[i]) else sign * values[i]
    )
    return {name: float(column[epoch]) for name, column in history.items() if len(column) > epoch}


#: Factor on the time budget of a trial that never reached the target: the penalized average runtime
#: (PAR10) of algorithm configuration, Hutter et al. 2009, "ParamILS", section 3.
PENALTY = 10


def target_metrics(
    stop: StopAtAccuracy, target: float, *, time_budget: float | None
) -> dict[str, float]:
    """Return what a trial scores that has a target: the seconds to it, and its best accuracy.

    A trial that missed it scores at least ten times the budget, the same for all trials: otherwise
    one that fails fast would score better than one that comes close. Of two, the one that came
    closer has the smaller score.

    Args:
        stop: The callback that has ended the trial.
        target: The accuracy to beat.
        time_budget: Maximum seconds per trial; `None` for as long as this one took.
    """
    best = stop.best.get("val_accuracy", 0.0)
    seconds = stop.met_seconds if stop.reached else None
    if seconds is None:
        budget = stop.seconds if time_budget is None else time_budget
        seconds = PENALTY * budget * (1 + max(0.0, target - best))
    return {"reached": float(stop.reached), "seconds_to_target": seconds, "val_accuracy": best}


def fail_unless_finite(results: Any, objective: str) -> None:
    """Fail a trial whose objective, in what KerasTuner's `run_trial` returned, is not finite."""
    for result in results if isinstance(results, list) else [results]:
        value = result.get(objective) if isinstance(result, Mapping) else result
        if isinstance(value, Real) and not math.isfinite(value):
            raise keras_tuner.errors.FailedTrialError(f"{objective} was {value:g}")


def missing_metric(name: str, reported: Iterable[str]) -> str:
    """What to do where training does not report the metric that trials are compared by."""
    return (
        f"trials are compared by {name}, but training reported {', '.join(reported) or 'nothing'}:"
        f' compile the model with it, as in metrics=["{name.removeprefix("val_")}"], pass'
        " validation data, or choose another --objective"
    )
