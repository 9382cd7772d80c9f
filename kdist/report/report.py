"""`Report`: everything that a page shows, put together from what was read."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from ..charts.figure import Figure
from ..charts.style import LIGHT
from ..errors import UserError
from ..runs.run_record import RunRecord
from .compared_results import find_results
from .heading import page_facts, page_title
from .headlines import Headline, headlines
from .inputs import Sources
from .sections import Rows, Section, make_sections
from .skipped import Skipped

SHOWN_AT_FIRST = len(LIGHT)
"""Runs that a page shows at first, each in its own colour; of more, the best."""


@dataclass(kw_only=True)
class Report:
    """What a page shows.

    Attributes:
        title: What was run.
        facts: Where and when, and what wrote the page.
        headlines: The figures that come first.
        sections: The parts.
        run_names: The names of the runs.
        by_colour: The same in the order of their colours; those drawn at first come first.
        shown: The names of the runs that are drawn at first.
        skipped: What is not shown.
    """

    title: str
    facts: list[str]
    headlines: list[Headline]
    sections: list[Section]
    run_names: list[str]
    by_colour: list[str]
    shown: list[str]
    skipped: list[Skipped]

    @property
    def figures(self) -> list[Figure]:
        """All charts."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def data(self) -> dict[str, Rows]:
        """The rows of all charts, by the name of the data."""
        return {name: rows for section in self.sections for name, rows in section.data.items()}


def make_report(
    sources: Sources, *, baseline: str | None = None, today: datetime.date | None = None
) -> Report:
    """Put a report together.

    Args:
        sources: What was read.
        baseline: Name or folder of the run that settings are compared with; by default the first.
        today: The date on the page; today's by default.

    Raises:
        UserError: There is no run of the baseline's name.
    """
    runs = sources.all_runs
    shown = _shown(runs)
    names = [run.name for run in runs]
    by_colour = [*shown, *(name for name in names if name not in shown)]
    return Report(
        title=page_title(sources),
        facts=page_facts(sources, today or datetime.date.today()),
        headlines=headlines(find_results(sources)),
        sections=make_sections(sources, _baseline(runs, baseline), names=by_colour),
        run_names=names,
        by_colour=by_colour,
        shown=shown,
        skipped=sources.skipped,
    )


def _baseline(runs: Sequence[RunRecord], name: str | None) -> RunRecord | None:
    if name is None:
        return runs[0] if runs else None
    wanted = name.rstrip("/")
    for run in runs:
        if wanted in (run.name, run.path.name, str(run.path)):
            return run
    names = ", ".join(run.name for run in runs[:20])
    raise UserError(
        f"no run is called {name}: --baseline is one of {names or 'none, there are none'}"
    )


def _shown(runs: Sequence[RunRecord]) -> list[str]:
    best = sorted(runs, key=lambda run: run.best[0] if run.best else -1.0, reverse=True)
    kept = {run.name for run in best[:SHOWN_AT_FIRST]}
    return [run.name for run in runs if run.name in kept]
