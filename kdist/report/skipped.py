"""`Skipped`: a folder or file that a report does not show."""

from dataclasses import dataclass
from pathlib import Path

from ..runs.text import sanitize_text


@dataclass(frozen=True)
class Skipped:
    """A folder or file that a report does not show.

    Attributes:
        path: The path as the reader would find it.
        reason: Why it is not shown.
    """

    path: str
    reason: str

    @classmethod
    def of(cls, path: Path, reason: object) -> "Skipped":
        """Make one whose text can be encoded as UTF-8."""
        return cls(sanitize_text(str(path)), sanitize_text(str(reason)))
