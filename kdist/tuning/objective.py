"""Objectives of a search, and the score of a trial that misses its target."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UserError

if TYPE_CHECKING:
    from ..callbacks import StopAtAccuracy

#: Factor on the time budget of a trial that never reached the target: the penalized average runtime
#: (PAR10) of algorithm configuration, Hutter et al. 2009, "ParamILS", section 3.
PENALTY = 10


@dataclasses.dataclass(frozen=True)
class Objective:
    """A metric, and whether larger (`"max"`) or smaller (`"min"`) values are better."""

    metric: str
    direction: str


OBJECTIVES = {
    "val_accuracy": Objective("val_accuracy", "max"),
    "val_loss": Objective("val_loss", "min"),
    "seconds_to_target": Objective("seconds_to_target", "min"),
}

#: Short names of objectives, which are those of validation.
_SHORT = {"accuracy": "val_accuracy", "loss": "val_loss"}


def full_name(name: str) -> str:
    """Return the objective's name as Keras reports it: `val_accuracy` for `accuracy`."""
    return _SHORT.get(name, name)


#: Metrics that Keras reports of a validation.
OF_VALIDATION = ("val_accuracy", "val_loss")


def find_objective(name: str) -> Objective:
    """Return the objective of this name.

    Raises:
        UserError: The name is unknown.
    """
    name = full_name(name)
    if name not in OBJECTIVES:
        raise UserError(f"objective has to be one of {', '.join(OBJECTIVES)}; received {name}")
    return OBJECTIVES[name]


def check_time_budget(metric: str, time_budget: float | None) -> None:
    """Reject the objective `seconds_to_target` without a time budget.

    Raises:
        UserError: There is no time budget.
    """
    if metric == OBJECTIVES["seconds_to_target"].metric and time_budget is None:
        raise UserError(
            f"the objective {metric} needs a time budget, received none: pass --time-budget, the"
            " maximum seconds per trial; a trial that misses the target scores ten times that"
        )


def seconds_to_target(
    met_seconds: float | None, *, budget: float, best: float, target: float
) -> float:
    """Return the seconds until the target was met, or at least ten times the budget if it was not.

    Args:
        met_seconds: Seconds until it was met; `None` if it never was.
        budget: Maximum seconds per trial, the same for all trials: otherwise a trial that fails
            fast would score better than one that comes close to the target.
        best: The best accuracy of the trial.
        target: The accuracy to beat. Of two trials that missed it, the one that came closer has the
            smaller score.
    """
    if met_seconds is not None:
        return met_seconds
    return PENALTY * budget * (1 + max(0.0, target - best))


def target_metrics(
    stop: "StopAtAccuracy", target: float, *, time_budget: float | None
) -> dict[str, float]:
    """Return what a trial scores whose objective is `seconds_to_target`.

    Args:
        stop: The callback that has ended the trial.
        target: The accuracy to beat.
        time_budget: Maximum seconds per trial; `None` for as long as this one took.
    """
    best = stop.best.get("val_accuracy", 0.0)
    return {
        "reached": float(stop.reached),
        "seconds_to_target": seconds_to_target(
            stop.met_seconds if stop.reached else None,
            budget=stop.seconds if time_budget is None else time_budget,
            best=best,
            target=target,
        ),
        "val_accuracy": best,
    }


def missing_metric(name: str, reported: Iterable[str]) -> str:
    """What to do where training does not report the metric that trials are compared by."""
    return (
        f"trials are compared by {name}, but training reported {', '.join(reported) or 'nothing'}:"
        f' compile the model with it, as in metrics=["{name.removeprefix("val_")}"], pass'
        " validation data, or choose another --objective"
    )


def best_epoch(history: Mapping[str, Sequence[float]], objective: Objective) -> dict[str, float]:
    """Return the metrics of the best epoch by `objective`.

    Raises:
        UserError: The metric is not in the history.
    """
    if not history.get(objective.metric):
        raise UserError(missing_metric(objective.metric, history))
    values = history[objective.metric]
    sign = 1 if objective.direction == "max" else -1
    epoch = max(
        range(len(values)), key=lambda i: -math.inf if math.isnan(values[i]) else sign * values[i]
    )
    return {name: float(column[epoch]) for name, column in history.items() if len(column) > epoch}
