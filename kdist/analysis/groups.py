"""Filter and group the rows of a sweep."""

from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]
"""The result of a point of a sweep, by column."""


def done(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of points that did not fail."""
    return [row for row in rows if row["status"] == "done"]


def failures(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return names and errors of the points that failed."""
    return [
        {"name": row["name"], "error": row["error"]} for row in rows if row["status"] == "failed"
    ]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by the values of columns, in order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups
