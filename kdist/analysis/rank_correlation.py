"""Rank correlation of hyperparameters with the score."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

#: With fewer trials, a correlation is meaningless.
LEAST_TRIALS = 4


def importance(
    values: Sequence[Mapping[str, Any]], scores: Sequence[float]
) -> dict[str, float | None]:
    """Return the rank correlation of each hyperparameter with the score.

    For numbers it is Spearman's, from -1 (the larger the value, the lower the score) to 1. For
    names it is the correlation ratio of the score's ranks, from 0 to 1: the square root of the
    fraction of their variance that is between the names. For two names this is the absolute value
    of Spearman's.

    Both consider one hyperparameter at a time, and do not detect a best value in the middle of a
    range.

    Args:
        values: The hyperparameters of each trial.
        scores: The score of each trial.

    Returns:
        A number per hyperparameter, the largest absolute value first; `None` if the hyperparameter
        or the score never changed, or with fewer than four trials.
    """
    correlations = {
        name: _correlation([trial.get(name) for trial in values], scores) for name in _names(values)
    }
    return dict(sorted(correlations.items(), key=lambda item: -abs(item[1] or 0.0)))


def _names(values: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for trial in values for name in trial)
    return [name for name in names if not name.startswith("tuner/")]


def _correlation(values: Sequence[Any], scores: Sequence[float]) -> float | None:
    names = [str(value) for value in values]
    if len(scores) < LEAST_TRIALS or len(set(names)) < 2 or len(set(scores)) < 2:
        return None
    from scipy import stats  # takes a second to import

    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return float(stats.spearmanr(values, scores).statistic)
    groups = [
        [score for name, score in zip(names, scores, strict=True) if name == group]
        for group in dict.fromkeys(names)
    ]
    # Kruskal and Wallis's statistic is this fraction times one less than the number of trials.
    return math.sqrt(stats.kruskal(*groups).statistic / (len(scores) - 1))
