"""`SearchFolder`: the files of a search."""

import fcntl
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ..errors import UserError, error_text
from ..files import atomic_write, explain_write_errors, parse_json, read_text
from .search import Search, differences


class SearchFolder:
    """The folder of one search.

    It contains `search.json` (the settings), KerasTuner's files in `trials/`, and the results:
    `best.json`, `trials.csv` and `trials.png`.

    Args:
        path: The folder, which need not exist.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._made: list[Path] = []
        self._lock: TextIO | None = None

    @property
    def trials(self) -> Path:
        """KerasTuner's own folder: `oracle.json`, and one folder per trial."""
        return self.path / "trials"

    @property
    def has_search(self) -> bool:
        """Whether there is a search, which the same command resumes."""
        return (self.path / "search.json").exists()

    def open(self, search: Search) -> bool:
        """Create the folder, or resume the search in it.

        No other process can open it until `close` or the end of this process.

        Returns:
            Whether a search is resumed.

        Raises:
            UserError: The folder contains another search or other files, its search is running, or
                it cannot be written. Nothing is changed then.
        """
        settings = json.loads(json.dumps(search.to_dict()))
        with explain_write_errors(self.path, hint="pass another --output"):
            resumed = self._holds(settings)
            folders = (self.path, *self.path.parents)
            self._made = [folder for folder in folders if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w", encoding="utf-8")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self.close()
                raise UserError(
                    f"another kdist tune is running in {self.path}: wait until it ends, or pass"
                    " another --output"
                ) from error
            self.write_json("search.json", settings)
        return resumed

    def _holds(self, settings: Mapping[str, Any]) -> bool:
        """Whether the folder contains a search with these settings; raises for other contents."""
        before = self.read("search.json")
        if before is None:
            if self.path.is_dir() and not all(map(_is_ours, self.path.iterdir())):
                raise UserError(
                    f"the folder {self.path} is not empty and contains no search: pass another"
                    " --output"
                )
            return False
        changed = differences(before, settings)
        if changed:
            raise UserError(
                f"the folder {self.path} contains another search ({'; '.join(changed)}): pass"
                " another --output, or the settings that it was started with"
            )
        return True

    def close(self) -> None:
        """Release the folder, so that other processes can open it."""
        if self._lock is not None:
            self._lock.close()

    def discard(self) -> None:
        """Remove what a search has made that has nothing to resume."""
        shutil.rmtree(self.trials, ignore_errors=True)
        for name in ("search.json", "space.json", ".lock"):
            (self.path / name).unlink(missing_ok=True)
        for folder in self._made:
            if folder.exists() and not any(folder.iterdir()):
                folder.rmdir()

    def read(self, name: str) -> dict[str, Any] | None:
        """Read a JSON file; `None` if it does not exist.

        Raises:
            UserError: It cannot be read, or is not valid JSON.
        """
        path = self.path / name
        if not path.exists():
            return None
        try:
            found = parse_json(read_text(path))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{path} is damaged ({error_text(error)}): pass another --output"
            ) from error
        if not isinstance(found, dict):
            raise UserError(f"{path} is damaged (it has no settings): pass another --output")
        return found

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write `values` to the file `name` atomically."""
        atomic_write(self.path / name, json.dumps(values, indent=2) + "\n")


def _is_ours(path: Path) -> bool:
    # What a kill leaves before the settings are written.
    return path.name == ".lock" or (
        path.name.startswith(".") and path.name.endswith(".search.json")
    )
