"""`WandbRecord`: what W&B was sent of a run, for a process that resumes it."""

import json
from pathlib import Path
from typing import Any

from ..atomic_files import atomic_write

_NOTHING: dict[str, Any] = {"id": None, "epoch": 0, "step": 0, "telemetry": 0, "rows": 0}


class WandbRecord:
    """A small file beside W&B's own: no server has to be asked, and offline there is none.

    It is written before W&B gets anything: what is sent twice stands twice in its charts, whereas
    what a killed process did not send is one missing point.

    Args:
        folder: The run folder; the file is `wandb/sent.json` in it.

    Attributes:
        values: `id` of the W&B run, the last `epoch`, `step` and step of `telemetry` that were
            sent, and the number of `rows`.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "wandb" / "sent.json"
        self.values = dict(_NOTHING)

    def begin(self, *, continues: bool) -> None:
        """Start a record, or read the one that there is.

        Args:
            continues: Whether the run may have been begun by another process.
        """
        self.values = dict(_NOTHING)
        if continues and self._path.exists():
            self.values |= json.loads(self._path.read_text(encoding="utf-8"))

    def note(self, **values: Any) -> None:
        """Write what is about to be sent."""
        self.values |= values
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, json.dumps(self.values))

    def is_new(self, name: str, number: int) -> bool:
        """Whether an epoch or a step was not sent yet; notes that it is, as one more row.

        Args:
            name: `"epoch"`, `"step"` or `"telemetry"`.
            number: Its number, from 1.
        """
        if number <= self.values[name]:
            return False
        self.note(**{name: number, "rows": self.values["rows"] + 1})
        return True
