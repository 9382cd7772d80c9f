"""How much each hyperparameter had to do with the score: rank correlation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: With fewer trials a correlation says nothing.
LEAST_TRIALS = 4


def importance(
    values: Sequence[Mapping[str, Any]], scores: Sequence[float]
) -> dict[str, float | None]:
    """The rank correlation of each hyperparameter with the score.

    Of numbers it is Spearman's, from -1 (the larger, the lower the score) to 1. Of names it is the
    correlation ratio of the score's ranks, from 0 to 1: the root of the share of their variance
    that lies between the names. For two names that is Spearman's without its sign.

    Both see one hyperparameter at a time, and neither a best value in the middle of a range.

    Args:
        values: Of each trial.
        scores: Of each trial.

    Returns:
        For each hyperparameter a number, or `None` where it or the score never changed, or where
        there are fewer than four trials; the farthest from 0 first.
    """
    found = {
        name: _correlation([trial.get(name) for trial in values], scores) for name in _names(values)
    }
    return dict(sorted(found.items(), key=lambda item: -abs(item[1] or 0.0)))


def ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
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
    of_scores = ranks([score for _, score in pairs])
    constant = len({str(value) for value in values}) < 2 or np.ptp(of_scores) == 0
    if len(pairs) < LEAST_TRIALS or constant:
        return None
    if numeric:
        return float(np.corrcoef(ranks([value for value, _ in pairs]), of_scores)[0, 1])
    groups = [
        of_scores[[str(value) == name for value in values]]
        for name in dict.fromkeys(map(str, values))
    ]
    centre = of_scores.mean()
    between = sum(len(group) * (group.mean() - centre) ** 2 for group in groups)
    return float(np.sqrt(between / ((of_scores - centre) ** 2).sum()))
