"""What a search makes large or small, and what a trial that misses the target counts."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ..errors import UserError

#: The time budget of a trial that never reached the target counts so many times: the penalized
#: average runtime (PAR10) of algorithm configuration, Hutter et al. 2009, "ParamILS", section 3.
PENALTY = 10


@dataclasses.dataclass(frozen=True)
class Objective:
    """A metric and whether more (`"max"`) or less (`"min"`) of it is better."""

    metric: str
    direction: str


OBJECTIVES = {
    "accuracy": Objective("val_accuracy", "max"),
    "loss": Objective("val_loss", "min"),
    "seconds_to_target": Objective("seconds_to_target", "min"),
}


def find_objective(name: str) -> Objective:
    """The objective of this name.

    Raises:
        UserError: There is none.
    """
    if name not in OBJECTIVES:
        raise UserError(f"objective is one of {', '.join(OBJECTIVES)}; received {name}")
    return OBJECTIVES[name]


def check_time_budget(metric: str, time_budget: float | None) -> None:
    """Refuse a search for seconds to a target that has no time budget.

    Raises:
        UserError: It has none.
    """
    if metric == OBJECTIVES["seconds_to_target"].metric and time_budget is None:
        raise UserError(
            f"the objective {metric} takes a time budget, received none: pass --time-budget, the"
            " seconds that a trial has at most; one that misses the target counts ten times that"
        )


def seconds_to_target(
    met_seconds: float | None, *, budget: float, best: float, target: float
) -> float:
    """Seconds until the target was met; ten times the budget, and more, where it was not.

    Args:
        met_seconds: When it was met, `None` for never.
        budget: Seconds that every trial has at most: the same for all, lest one that fails fast
            counts less than one that comes close.
        best: The best accuracy there was.
        target: The accuracy to beat. Of two trials that missed it, the one that came closer counts
            less.
    """
    if met_seconds is not None:
        return met_seconds
    return PENALTY * budget * (1 + max(0.0, target - best))


def best_epoch(history: Mapping[str, Sequence[float]], objective: Objective) -> dict[str, float]:
    """The metrics of the epoch that was best by `objective`.

    Raises:
        UserError: The metric is not in the history.
    """
    if not history.get(objective.metric):
        raise UserError(
            f"the objective is {objective.metric}, but training reported"
            f" {', '.join(history) or 'nothing'}: compile the model with the metric, and give"
            " validation data"
        )
    values = history[objective.metric]
    sign = 1 if objective.direction == "max" else -1
    epoch = max(
        range(len(values)), key=lambda i: -math.inf if math.isnan(values[i]) else sign * values[i]
    )
    return {name: float(column[epoch]) for name, column in history.items() if len(column) > epoch}
