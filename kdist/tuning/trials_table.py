"""The table of a search's trials, from their results: for a terminal and for a page."""

from collections.abc import Sequence
from typing import Any

from ..charts.tables import MISSING, ResultsTable, setting
from .objective import find_objective
from .search import Search
from .search_results import TrialResult, best_first, hyperparameters


def trials_table(trials: Sequence[TrialResult], search: Search) -> ResultsTable:
    """Make a table of trials, best first: their scores, what was measured, hyperparameters.

    Args:
        trials: The trials that began.
        search: The settings of the search.
    """
    objective = find_objective(search.objective)
    names = tuned_names(trials)
    measured = [
        name
        for name in ("val_accuracy", "seconds", "epochs")
        if name != objective.metric and any(name in trial.metrics for trial in trials)
    ]
    ordered = [
        *best_first(list(trials), objective),
        *(trial for trial in trials if trial.score is None),
    ]
    return ResultsTable(
        title="Trials",
        columns=["Trial", objective.metric, *measured, *names],
        rows=[
            [
                trial.trial_id,
                _score(trial),
                *(_short(trial.metrics.get(name)) for name in measured),
                *(
                    _short(trial.values[name]) if name in trial.values else MISSING
                    for name in names
                ),
            ]
            for trial in ordered
        ],
        note=_note(search, objective.metric),
    )


def tuned_names(trials: Sequence[TrialResult]) -> list[str]:
    """Return the names of the trials' hyperparameters, in order: the last columns of the table."""
    return list(dict.fromkeys(name for trial in trials for name in hyperparameters(trial.values)))


def _score(trial: TrialResult) -> str:
    if trial.score is None:
        return trial.status.lower()
    return _short(trial.score) + ("" if trial.reached else ", missed the target")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else setting(value)


def _note(search: Search, metric: str) -> str:
    note = f"Best first, by {metric}; then the hyperparameters."
    if search.executions_per_trial > 1:
        note += f" Means over {search.executions_per_trial} runs per trial."
    if search.model is None:
        note += " Learning rates are those for one replica and the batch of the search."
    return note
