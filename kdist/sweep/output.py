"""Print the results of a sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..charts.tables import ResultsTable
from .experiment import Experiment


def print_line(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_results(
    console: Console, experiment: type[Experiment], summary: Mapping[str, Any]
) -> None:
    """Print the tables of a summary, the points that failed, and the warning."""
    for table in experiment.tables(summary):
        _print_table(console, table)
    for one in summary["failed"]:
        console.print(Text(f"Failed: {one['name']}: {one['error']}"))
    if summary["warning"]:
        console.print(Text(f"Warning: {summary['warning']}"))


def print_chart(console: Console, path: Path) -> None:
    """Print where a chart is."""
    print_line(console, f"Chart: {path}")


def say_whether_all_failed(console: Console, failed: int, points: int) -> int:
    """Print that every point failed, if so.

    Returns:
        The sweep's exit code: 1 if there is no result, else 0.
    """
    if failed < points:
        return 0
    which = "The only point" if points == 1 else f"All {points} points"
    print_line(
        console, f"{which} failed: --retry-failed runs {'it' if points == 1 else 'them'} again"
    )
    return 1


def _print_table(console: Console, table: ResultsTable) -> None:
    shown = Table(*table.columns, title=table.title)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown, highlight=False)
    for line in table.note.splitlines():
        console.print(Text(line))
