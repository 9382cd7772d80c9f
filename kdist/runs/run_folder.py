"""`RunFolder`: the files of a run."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic_files import (
    atomic_path,
    atomic_write,
    explain_write_errors,
    remove_empty,
    writable_folder,
)
from ..errors import UserError

if TYPE_CHECKING:
    import keras


_HINT = "free some space, or pass another --run-dir"


class RunFolder:
    """A new folder for one run: `config.json`, `history.csv`, `summary.json`, `model.keras`.

    Args:
        path: The folder; `None` makes `runs/<date>-<time>`. It is created with its parents, and
            has to be empty.

    Raises:
        UserError: The folder is not empty, not a folder, or cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self.path = Path(path) if path is not None else _unused_name()
        self._made = writable_folder(self.path, option="--run-dir")
        if any(self.path.iterdir()):
            raise UserError(
                f"the run folder {self.path} is not empty: pass another --run-dir, or remove it"
            )

    def discard(self) -> None:
        """Remove what was created for the run, unless it has a result or other files."""
        if not self._holds_a_result():
            for file in (self.path / "config.json", self.history):
                file.unlink(missing_ok=True)
        remove_empty(self._made)

    def _holds_a_result(self) -> bool:
        if (self.path / "summary.json").exists():
            return True
        if not self.history.exists():
            return False
        heading_and_epochs = self.history.read_text(encoding="utf-8").splitlines()
        return len(heading_and_epochs) > 1

    @property
    def history(self) -> Path:
        """The table of the epochs, with one line each."""
        return self.path / "history.csv"

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / "model.keras"

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write `values` to the file `name`, completely or not at all.

        Raises:
            UserError: It cannot be written.
        """
        with explain_write_errors(self.path / name, hint=_HINT):
            atomic_write(self.path / name, json.dumps(values, indent=2) + "\n")

    def save_model(self, model: "keras.Model") -> None:
        """Save the model, completely or not at all.

        Raises:
            UserError: It cannot be written.
        """
        with explain_write_errors(self.model, hint=_HINT), atomic_path(self.model) as part:
            model.save(part)


def _unused_name() -> Path:
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    name = Path("runs") / stamp
    tries = 1
    while name.exists():
        tries += 1
        name = Path("runs") / f"{stamp}-{tries}"
    return name
