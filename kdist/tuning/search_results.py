"""Results of a search, read from its folder without TensorFlow."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import parse_json, read_text
from .objective import Objective, find_objective
from .search import Search
from .search_folder import SearchFolder

# How the search was tracked and where it ran: not settings of the best run.
_OF_THE_SEARCH = ("track", "track_batches", "log_model", "profile_batches", "run_dir", "log_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        trial_id: KerasTuner's name of the trial.
        status: `"COMPLETED"`, `"FAILED"`, or KerasTuner's status of an unfinished trial.
        score: The value of the objective; `None` unless completed.
        values: Its hyperparameters; for a built-in network as settings. Those that Hyperband adds
            begin with `tuner/`.
        metrics: Means over the executions: the objective, `seconds`, `epochs`, …
        failure: Why it failed, in one line.
        sampling: How each hyperparameter with a range was sampled: `"linear"`, `"log"`, …
    """

    trial_id: str
    status: str
    score: float | None
    values: dict[str, Any]
    metrics: dict[str, float]
    failure: str = ""
    sampling: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def reached(self) -> bool:
        """Whether every execution reached the target; true if there is none."""
        return self.metrics.get("reached", 1.0) >= 1.0


def read_trials(
    folder: SearchFolder, search: Search, *, order: str = "start_order"
) -> list[TrialResult]:
    """Read the trials of a search so far, in the order in which they started.

    Args:
        folder: The folder of the search.
        search: The settings of the search.
        order: `"end_order"` for the finished trials only, in the order in which they ended.

    Raises:
        UserError: A file of KerasTuner's is damaged.
    """
    oracle = folder.read("trials/oracle.json") or {order: []}
    try:
        trials = [folder.trials / f"trial_{trial_id}" for trial_id in oracle[order]]
        return [_read_trial(trial, search) for trial in trials]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"the trials in {folder.trials} are damaged ({type(error).__name__}: {error}): pass"
            " another --output"
        ) from error


def _read_trial(folder: Path, search: Search) -> TrialResult:
    state = parse_json(read_text(folder / "trial.json"))
    space = state["hyperparameters"].get("space", [])
    names = [part["config"]["name"] for part in space]
    values = in_order(state["hyperparameters"]["values"], names)
    if search.model is None:
        added = {name: value for name, value in values.items() if name.startswith("tuner/")}
        values = {**search.search_space().decode(values), **added}
    failure = folder / "failure.txt"
    reason = ""
    if state["status"] == "FAILED":
        text = failure.read_text(encoding="utf-8") if failure.exists() else "no reason given"
        reason = text.splitlines()[0]
    return TrialResult(
        trial_id=state["trial_id"],
        status=state["status"],
        score=state["score"] if state["status"] == "COMPLETED" else None,
        values=values,
        metrics={
            name: metric["observations"][-1]["value"][-1]
            for name, metric in state["metrics"]["metrics"].items()
        },
        failure=reason,
        sampling={
            part["config"]["name"]: part["config"]["sampling"]
            for part in space
            if part["config"].get("sampling")
        },
    )


def log_sampled(trials: Sequence[TrialResult]) -> list[str]:
    """Return the hyperparameters that a search samples on a logarithmic scale."""
    ways = {name: way for trial in trials for name, way in trial.sampling.items()}
    return [name for name, way in ways.items() if way in ("log", "reverse_log")]


def best_first(trials: list[TrialResult], objective: Objective) -> list[TrialResult]:
    """Sort the completed trials, best first; those that missed the target come last."""
    sign = -1 if objective.direction == "max" else 1
    finished = [trial for trial in trials if trial.score is not None]
    return sorted(finished, key=lambda trial: (not trial.reached, sign * (trial.score or 0.0)))


def best_settings(search: Search, trials: list[TrialResult]) -> dict[str, Any] | None:
    """Return the best trial's settings, for `kdist train --config`; `None` if none was completed.

    They have as many replicas as the trial; none are named if it had all devices of its machine.
    For the user's own `build(hp)` it returns the hyperparameters.
    """
    from .trial_config import trial_config

    ranked = best_first(trials, find_objective(search.objective))
    if not ranked:
        return None
    values = hyperparameters(ranked[0].values)
    if search.model is not None:
        return values
    settings = trial_config(search.config, values).to_dict()
    settings["replicas"] = search.replicas  # with `per_trial` the configuration has none
    return {name: value for name, value in settings.items() if name not in _OF_THE_SEARCH}


def hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a trial without those that Hyperband adds."""
    return {name: value for name, value in values.items() if not name.startswith("tuner/")}


def in_order(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return values by name, in the order of `names`; the others follow."""
    known = [name for name in names if name in values]
    return {name: values[name] for name in dict.fromkeys([*known, *values])}


def describe(values: Mapping[str, Any]) -> str:
    """Format the hyperparameters of a trial in one line."""
    shown = hyperparameters(values)
    if values.get("tuner/epochs"):
        shown["epochs"] = f"{values['tuner/initial_epoch'] + 1} to {values['tuner/epochs']}"
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in shown.items()
    )
