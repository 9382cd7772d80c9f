"""Report a search: the table and chart of its trials, and the files with its results."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from ..analysis.rank_correlation import importance
from ..files import atomic_write
from .objective import find_objective
from .search import Search
from .search_folder import SearchFolder
from .search_results import TrialResult, best_first, best_settings, read_trials
from .trials_table import trials_table, tuned_names

# A table is as wide as its cells; a terminal wraps what is wider.
_WIDE = 1000


def report(search: Search, folder: SearchFolder, *, announce: Callable[[str], None]) -> None:
    """Write `trials.csv`, `trials.png` and `best.json`, and announce the results.

    Args:
        search: The settings of the search.
        folder: The folder of the search.
        announce: Called with the table and the lines below it.
    """
    trials = read_trials(folder, search)
    ranked = best_first(trials, find_objective(search.objective))
    atomic_write(folder.path / "trials.csv", trials_csv(trials))
    failed = [trial for trial in trials if trial.status == "FAILED"]
    announce(_as_text(trials, search))
    for trial in failed:
        announce(f"Trial {trial.trial_id} failed: {trial.failure}")
    settings = best_settings(search, trials)
    if settings is None:
        announce("No trial was completed.")
        return
    _draw(trials, search, folder)
    best = ranked[0]
    folder.write_json("best.json", settings)
    announce(f"Best trial: {best.trial_id}, {search.objective} {best.score:.4g}")
    if not best.reached:
        announce(
            f"No trial beat the target accuracy of {search.config.target_accuracy:g}; such trials"
            " score at least ten times the time budget."
        )
    path = folder.path / "best.json"
    announce(
        f"Best settings: kdist train --config {path}"
        if search.model is None
        else f"Best hyperparameters: {path}"
    )


def trials_csv(trials: Sequence[TrialResult]) -> str:
    """Format the trials as CSV: name, status, score, hyperparameters, metrics, failure."""
    names = _columns([trial.values for trial in trials])
    metrics = [name for name in _columns([trial.metrics for trial in trials]) if name not in names]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # Not the objective's name: accuracy and loss are metrics of the training, too.
    writer.writerow(["trial", "status", "score", *names, *metrics, "failure"])
    for trial in trials:
        cells = [trial.values.get(name, "") for name in names]
        cells += [_metric(name, trial.metrics.get(name, "")) for name in metrics]
        score = "" if trial.score is None else trial.score
        writer.writerow([trial.trial_id, trial.status, score, *cells, trial.failure])
    return text.getvalue()


def _as_text(trials: Sequence[TrialResult], search: Search) -> str:
    """The table of the trials, with each hyperparameter's rank correlation."""
    from rich.console import Console
    from rich.table import Table

    found = trials_table(trials, search)
    table = Table()
    for column in found.columns:
        table.add_column(column, no_wrap=True)
    for row in found.rows:
        table.add_row(*row)
    table.add_section()
    names, scored = tuned_names(trials), [trial for trial in trials if trial.score is not None]
    weights = importance(
        [trial.values for trial in scored], [trial.score or 0.0 for trial in scored]
    )
    cells = ["-" if weights.get(name) is None else f"{weights[name]:+.2f}" for name in names]
    others = len(found.columns) - len(names)
    table.add_row("rank correlation", *[""] * (others - 1), *cells)
    text = io.StringIO()
    Console(file=text, width=_WIDE).print(table)
    return text.getvalue().rstrip()


def _draw(trials: Sequence[TrialResult], search: Search, folder: SearchFolder) -> None:
    from .trials_figure import trials_figure

    (figure,), data = trials_figure("trials", trials, search)
    atomic_write(folder.path / f"{figure.id}.png", figure.png(data))


def _metric(name: str, value: Any) -> Any:
    # KerasTuner keeps counts as floats; the mean of several executions need not be whole.
    is_count = name == "epochs" and isinstance(value, float) and value.is_integer()
    return int(value) if is_count else value


def _columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))
