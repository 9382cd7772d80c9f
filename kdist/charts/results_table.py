"""`ResultsTable`: a table of results as text."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResultsTable:
    """A table of results, for a terminal and for a page.

    Attributes:
        title: What it shows.
        columns: Its heading.
        rows: The cells' text, each row as long as the heading.
        note: A sentence or two below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
