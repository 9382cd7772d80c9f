"""Objectives of a search, and the score of a trial that misses its target."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ..errors import UserError

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


def best_epoch(history: Mapping[str, Sequence[float]], objective: Objective) -> dict[str, float]:
    """Return the metrics of the best epoch by `objective`.

    Raises:
        UserError: The metric is not in the history.
    """
    if not history.get(objective.metric):
        raise UserError(
            f"the objective is {objective.metric}, but training reported"
            f" {', '.join(history) or 'nothing'}: compile the model with the metric, and pass"
            " validation data"
        )
    values = history[objective.metric]
    sign = 1 if objective.direction == "max" else -1
    epoch = max(
        range(len(values)), key=lambda i: -math.inf if math.isnan(values[i]) else sign * values[i]
    )
    return {name: float(column[epoch]) for name, column in history.items() if len(column) > epoch}
