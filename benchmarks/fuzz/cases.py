"""`Case`: a command line and the files that it finds."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A command line in a folder.

    Attributes:
        arguments: What follows `kdist`.
        files: The contents of the folder, by path in it; `None` is an empty folder.
    """

    arguments: Sequence[str]
    files: Mapping[str, bytes | None] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        files = {name: _short(content) for name, content in self.files.items()}
        return f"kdist {' '.join(map(_short, self.arguments))}  # in {files}"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))  # as Hypothesis prints it


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]}…{text[-50:]} ({len(text):,} characters)"
