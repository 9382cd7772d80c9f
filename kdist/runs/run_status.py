"""`RunStatus`: how a run ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunStatus:
    """How a run ended.

    Attributes:
        word: `"complete"`, `"interrupted"`, `"diverged"` or `"unfinished"`.
        detail: What is known about it, such as `"diverged in epoch 4, step 17"`.
    """

    word: str
    detail: str

    @property
    def is_complete(self) -> bool:
        """Whether the run trained to its end."""
        return self.word == "complete"


def run_status(summary: Mapping[str, Any], *, finished: bool) -> RunStatus:
    """Say how a run ended, by its `summary.json`.

    Args:
        summary: The content of the file.
        finished: Whether there is such a file.

    Example:
        >>> run_status({"diverged": {"epoch": 4, "step": 17}}, finished=True).detail
        'diverged in epoch 4, step 17'
    """
    if not finished:
        return RunStatus("unfinished", "killed or still running")
    diverged = summary.get("diverged")
    if diverged:
        where = diverged if isinstance(diverged, Mapping) else {}
        known = [f"{name} {where[name]}" for name in ("epoch", "step") if name in where]
        return RunStatus("diverged", "diverged" + (f" in {', '.join(known)}" if known else ""))
    if summary.get("interrupted"):
        return RunStatus("interrupted", "interrupted")
    return RunStatus("complete", "complete")
