"""The chart of a search, from the results of its trials."""

from collections.abc import Sequence

from ..analysis.rank_correlation import importance
from ..charts.figure import Figures
from ..charts.search import COMPLETED, FAILED, MISSED, TrialPoint, search_figure
from ..training.settings import NETWORKS, SIZES, model_name
from .objective import find_objective
from .search import Search
from .search_results import TrialResult, hyperparameters, log_sampled


def trials_figure(ident: str, trials: Sequence[TrialResult], search: Search) -> Figures:
    """Draw the trials that ended, in order and against each hyperparameter that varied.

    Args:
        ident: The figure's id, and the name of its data.
        trials: The trials in the order in which they started.
        search: The settings of the search.
    """
    objective = find_objective(search.objective)
    points = [
        TrialPoint(
            number=number,
            outcome=_outcome(trial),
            score=trial.score,
            values=hyperparameters(trial.values),
        )
        for number, trial in zip(_numbers(trials), trials, strict=True)
        if trial.score is not None or trial.status == "FAILED"
    ]
    scored = [point for point in points if point.score is not None]
    correlations = importance([p.values for p in scored], [p.score or 0.0 for p in scored])
    # What only failed trials have, and what none of them changed, is unknown.
    names = dict.fromkeys(name for point in points for name in point.values)
    return search_figure(
        ident,
        searched_model(search),
        objective.metric,
        points,
        correlations | {name: None for name in names if name not in correlations},
        direction=objective.direction,
        log=log_sampled(trials),
    )


def searched_model(search: Search) -> str:
    """Name the model of a search: the user's function, or the network."""
    if search.model is not None:
        return search.model
    tuned = SIZES & set(search.space or ())
    if tuned:
        return NETWORKS[search.config.network].title
    return model_name(search.config.to_dict())


def _numbers(trials: Sequence[TrialResult]) -> list[int]:
    """The numbers that KerasTuner names trials with; counted where a name is not a number."""
    if all(trial.trial_id.isdigit() for trial in trials):
        return [int(trial.trial_id) for trial in trials]
    return list(range(1, len(trials) + 1))


def _outcome(trial: TrialResult) -> str:
    if trial.score is None:
        return FAILED
    return COMPLETED if trial.reached else MISSED
