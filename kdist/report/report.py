"""`Report`: everything that a page shows, put together from what was read."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from ..charts.figure import Figure
from ..errors import UserError
from ..runs.run_record import RunRecord
from .heading import page_facts, page_title
from .headlines import Headline, headlines
from .inputs import LeftOut, Sources
from .results import find_results
from .sections import Rows, Section, make_sections

# So many runs are told apart at a glance; of more, the best are shown first.
SHOWN_AT_FIRST = 8


@dataclass(kw_only=True)
class Report:
    """What a page shows.

    Attributes:
        title: What was run.
        facts: Where and when, and what wrote the page.
        headlines: The figures that come first.
        sections: The parts.
        run_names: Runs in the order of their colours.
        shown: Those of them that are drawn at first.
        left_out: What is not shown.
    """

    title: str
    facts: list[str]
    headlines: list[Headline]
    sections: list[Section]
    run_names: list[str]
    shown: list[str]
    left_out: list[LeftOut]

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
        baseline: Name of the run that settings are compared with; the first one by default.
        today: The date that the page bears; today's by default.

    Raises:
        UserError: There is no run of the baseline's name.
    """
    runs = sources.all_runs
    return Report(
        title=page_title(sources),
        facts=page_facts(sources, today or datetime.date.today()),
        headlines=headlines(find_results(sources)),
        sections=make_sections(sources, _baseline(runs, baseline)),
        run_names=[run.name for run in runs],
        shown=_shown(runs),
        left_out=sources.left_out,
    )


def _baseline(runs: Sequence[RunRecord], name: str | None) -> RunRecord | None:
    if name is None:
        return runs[0] if runs else None
    wanted = name.rstrip("/")
    for run in runs:
        if wanted in (run.name, str(run.path)):
            return run
    names = ", ".join(run.name for run in runs[:20])
    raise UserError(
        f"no run is called {name}: --baseline is one of {names or 'none, there are none'}"
    )


def _shown(runs: Sequence[RunRecord]) -> list[str]:
    best = sorted(runs, key=lambda run: run.best[0] if run.best else -1.0, reverse=True)
    kept = {run.name for run in best[:SHOWN_AT_FIRST]}
    return [run.name for run in runs if run.name in kept]
