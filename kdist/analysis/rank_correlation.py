"""Rank correlation of hyperparameters with the score."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

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


def ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return ranks from 1; equal values get the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(means[places], dtype=np.float64)


def _names(values: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for trial in values for name in trial)
    return [name for name in names if not name.startswith("tuner/")]


def _correlation(values: Sequence[Any], scores: Sequence[float]) -> float | None:
    pairs = [(value, score) for value, score in zip(values, scores, strict=True)]
    numeric = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    score_ranks = ranks([score for _, score in pairs])
    constant = len({str(value) for value in values}) < 2 or np.ptp(score_ranks) == 0
    if len(pairs) < LEAST_TRIALS or constant:
        return None
    if numeric:
        return float(np.corrcoef(ranks([value for value, _ in pairs]), score_ranks)[0, 1])
    groups = [
        score_ranks[[str(value) == name for value in values]]
        for name in dict.fromkeys(map(str, values))
    ]
    center = score_ranks.mean()
    between = sum(len(group) * (group.mean() - center) ** 2 for group in groups)
    return float(np.sqrt(between / ((score_ranks - center) ** 2).sum()))
