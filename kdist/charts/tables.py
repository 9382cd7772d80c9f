"""`ResultsTable`: a table of results as text; how accuracies, rates and durations are written."""

import dataclasses
from collections.abc import Sequence
from typing import Any

MISSING = "\N{EN DASH}"
"""Shown where there is no value."""


def accuracy(value: float | None) -> str:
    """Format an accuracy with four digits, as Keras does."""
    return MISSING if value is None else f"{value:.4f}"


def rate(value: float | None) -> str:
    """Format images per second with at least three digits: `1,235`, `12.3`."""
    if value is None:
        return MISSING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """Format a duration with its unit: `0.0213 s`, `41.7 s`, `12.3 min`, `3.4 h`."""
    if value is None:
        return MISSING
    if value < 600:
        return f"{value:.1f} s" if value >= 10 else f"{value:.3g} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def setting(value: Any) -> str:
    """Format the value of a setting; `None` is a dash."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(setting(part) for part in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {setting(part)}" for name, part in value.items())
    return str(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultsTable:
    """A table of results, for a terminal and for a page.

    Attributes:
        title: The subject of the table.
        columns: The heading.
        rows: The cells' text, each row as long as the heading.
        note: A sentence or two below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
