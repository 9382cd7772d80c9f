"""`SearchFolder`: the files of a search, which a resumed one has to fit."""

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ..errors import UserError
from ..whole_files import write_whole
from .search import Search, differences


class SearchFolder:
    """The folder of one search.

    Holds `search.json` (its settings), what KerasTuner writes below `trials/`, and what the
    search comes to: `best.json`, `trials.csv`, `trials.png`.

    Args:
        path: The folder, which may be missing.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock: TextIO | None = None

    @property
    def trials(self) -> Path:
        """KerasTuner's own folder: `oracle.json`, and a folder a trial."""
        return self.path / "trials"

    def open(self, search: Search) -> bool:
        """Make the folder, or take up the search that is in it.

        Nobody else can open it until `close`, or the end of the process, however it ends.

        Returns:
            Whether a search is resumed.

        Raises:
            UserError: Another search is in it, or something else; it is being run; or it cannot
                be written. Nothing is changed then.
        """
        settings = json.loads(json.dumps(search.to_dict()))
        try:
            before = self.read("search.json")
            if (
                before is None
                and self.path.is_dir()
                and not all(map(_is_ours, self.path.iterdir()))
            ):
                raise UserError(
                    f"the folder {self.path} is not empty and holds no search: pass another"
                    " --output"
                )
            if before is not None and (changed := differences(before, settings)):
                raise UserError(
                    f"the folder {self.path} holds another search ({'; '.join(changed)}): pass"
                    " another --output, or the settings that it was begun with"
                )
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("w", encoding="utf-8")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise UserError(
                f"another kdist tune is running in {self.path}: wait for its end, or pass another"
                " --output"
            ) from error
        except OSError as error:
            raise UserError(
                f"cannot use the folder {self.path}: {error.strerror}; pass another --output"
            ) from error
        self.write_json("search.json", settings)
        return before is not None

    def close(self) -> None:
        """Let others open it."""
        if self._lock is not None:
            self._lock.close()

    def read(self, name: str) -> dict[str, Any] | None:
        """The contents of a JSON file, `None` where there is none.

        Raises:
            UserError: It is no JSON.
        """
        path = self.path / name
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}): pass another --output") from error
        return found

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write `values` to the file `name`, whole or not at all."""
        write_whole(self.path / name, json.dumps(values, indent=2) + "\n")


def _is_ours(path: Path) -> bool:
    # What a kill leaves before the settings are written.
    return path.name == ".lock" or path.name.startswith(".search.json.")
