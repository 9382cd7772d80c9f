"""The chart of a search: the score by trial, and by each hyperparameter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .importance import importance
from .objective import find_objective
from .results import TrialResult
from .search import Search

_COLUMNS = 3


def draw_trials(trials: Sequence[TrialResult], search: Search, path: Path) -> None:
    """Draw the completed trials.

    Args:
        trials: In the order in which they began.
        search: Its settings.
        path: PNG file.
    """
    # Not pyplot, which would open a window where there is a screen.
    from matplotlib.figure import Figure

    finished = [trial for trial in trials if trial.score is not None]
    scores = [trial.score or 0.0 for trial in finished]
    weights = importance([trial.values for trial in finished], scores)
    rows = 1 + -(-len(weights) // _COLUMNS)
    figure = Figure(figsize=(4 * _COLUMNS, 3 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, _COLUMNS)
    axes = figure.add_subplot(grid[0, :])
    axes.plot(range(1, len(scores) + 1), scores, "o", label="trial")
    best = max if find_objective(search.objective).direction == "max" else min
    axes.step(
        range(1, len(scores) + 1),
        [best(scores[: index + 1]) for index in range(len(scores))],
        where="post",
        label="best so far",
    )
    axes.set(xlabel="completed trials", ylabel=search.objective)
    axes.legend()
    for index, (name, weight) in enumerate(weights.items()):
        axes = figure.add_subplot(grid[1 + index // _COLUMNS, index % _COLUMNS])
        _draw_one(axes, [trial.values.get(name) for trial in finished], scores)
        axes.set_xlabel(name if weight is None else f"{name} (rank correlation {weight:+.2f})")
        axes.set_ylabel(search.objective)
    figure.savefig(path, format="png", dpi=100)


def _draw_one(axes: Any, values: Sequence[Any], scores: Sequence[float]) -> None:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        axes.plot([str(value) for value in values], scores, "o")
        return
    axes.plot(numbers, scores, "o")
    if min(numbers) > 0 and max(numbers) > 20 * min(numbers):
        axes.set_xscale("log")
