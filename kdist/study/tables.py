"""Tables of results: `Spread` of repeated measurements, and how numbers are written."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MISSING = "\N{EN DASH}"
"""Text for a missing value."""


def format_accuracy(value: float | None) -> str:
    """Format an accuracy with four digits, as Keras does."""
    return MISSING if value is None else f"{value:.4f}"


def format_rate(value: float | None) -> str:
    """Format images per second with at least three digits: `1,235`, `12.3`."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_seconds(value: float | None) -> str:
    """Format a duration with its unit: `0.0213 s`, `41.7 s`, `12.3 min`, `3.4 h`."""
    if value is None:
        return MISSING
    if value < 600:
        return f"{value:.1f} s" if value >= 10 else f"{value:.3g} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def format_setting(value: Any) -> str:
    """Format the value of a setting; `None` is a dash."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(format_setting(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_setting(part)}" for name, part in value.items())
    return str(value)


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum of repeated measurements.

    A run that never reached the target counts with an infinite time: left out, or counted with its
    duration, the run would make its setting look better than it is.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(
        cls,
        values: Iterable[float | None],
        middle: Callable[[list[float]], float] = statistics.median,
    ) -> "Spread | None":
        """Return the spread of the values that are not `None`; `None` if there are no such values.

        Args:
            values: The measurements.
            middle: Returns the median; `statistics.median_low` if values may be infinite.

        Examples:
            >>> Spread.of([3.0, None, 1.0, 2.0])
            Spread(median=2.0, low=1.0, high=3.0)
        """
        known = [value for value in values if value is not None]
        return cls(middle(known), min(known), max(known)) if known else None

    def format(self, spec: str) -> str:
        """Format as `median (low-high)`; equal numbers as a single number.

        Examples:
            >>> Spread(18.0, 17.0, math.inf).format(".1f")
            '18.0 (17.0-never)'
        """

        def format_number(value: float) -> str:
            return format(value, spec) if math.isfinite(value) else "never"

        if math.isinf(self.median) or self.low == self.high:
            return format_number(self.median)
        low, high = format_number(self.low), format_number(self.high)
        return f"{format_number(self.median)} ({low}-{high})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultsTable:
    """A table of results, for a terminal and for a page.

    Attributes:
        title: The subject of the table.
        columns: The headings.
        rows: The text of the cells.
        note: A sentence or two below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def print_line(console: Console, line: str) -> None:
    """Print a line without markup; on a terminal it wraps between words."""
    console.print(Text(line), soft_wrap=not console.is_terminal)


def print_table(console: Console, table: ResultsTable) -> None:
    """Print a table and its note; cells wrap between words, so that no number is broken."""
    shown = Table(title=table.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, *cells in zip(table.columns, *table.rows, strict=True):
        words = [word for text in (name, *cells) for word in text.split()]
        shown.add_column(name, min_width=max(map(len, words), default=0))
    for row in table.rows:
        shown.add_row(*map(Text, row))
    console.print(shown, highlight=False)
    for line in table.note.splitlines():
        console.print(Text(line))
