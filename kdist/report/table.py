"""`Table`: rows of text, as the page shows them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes:
        text: Its text.
        kind: `""`, `"number"`, `"words"` (a sentence, may be long), `"path"`, `"changed"` (differs
            from the baseline) or `"run"`.
    """

    text: str
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        columns: The header.
        rows: The cells, each row as long as the header.
        note: A sentence below it.
    """

    title: str
    columns: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def header(words: str, *, text_columns: int = 1) -> list[Cell]:
    """The names between semicolons; those after the first `text_columns` are of numbers."""
    names = words.split("; ")
    return [Cell(name, "number" if at >= text_columns else "") for at, name in enumerate(names)]
