"""`StudyFolder`: the files of a sweep or search, and the lock of the process that uses them."""

import contextlib
import csv
import dataclasses
import io
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checkpoint.folder_lock import FolderLock
from ..errors import UserError, message_without_path
from ..files import (
    atomic_write,
    check_writable_folder,
    explain_write_errors,
    read_text,
)

Row = dict[str, Any]
"""The result of a point or trial, by column."""

STUDY_FILE = "study.json"
FORMAT = 5
# Speeds can be compared if these properties of the machine are equal.
_MACHINE_PROPERTIES = ("cpu", "cores", "devices")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """The contents of `study.json`; a study is resumed only with the same contents.

    Attributes:
        kind: `"search"`, or the kind of sweep.
        settings: The settings of the study.
        machine: The machine, if the results depend on it.
    """

    kind: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def find_differences(self, other: "StudyInfo", may_change: Collection[str] = ()) -> list[str]:
        """Return the differences of the folder's study from the study of this command.

        A difference is a text such as `depth is 10 in the folder and 16 in this command`.

        Args:
            other: The study of this command.
            may_change: Settings that may differ; nested settings with a dot, as `config.depth`.
        """
        if self.kind != other.kind:
            return [f"kind is {self.kind} in the folder and {other.kind} in this command"]
        # In a file, tuples are lists.
        other = StudyInfo(**json.loads(to_json(dataclasses.asdict(other))))
        before, now = self._flatten(), other._flatten()
        lines = []
        for name in sorted({*before, *now} - {*may_change}):
            old, new = before.get(name), now.get(name)
            if old != new and not name.startswith("files."):
                here = "on this machine" if name in _MACHINE_PROPERTIES else "in this command"
                difference = f"{format_option(old)} in the folder and {format_option(new)} {here}"
                lines.append(f"{name} is {difference}")
            elif old != new and name in before and name in now:
                lines.append(f"the file {name.removeprefix('files.')} has changed")
        return lines

    def _flatten(self) -> dict[str, Any]:
        """Return settings, nested settings with a dot, and properties of the machine, by name."""
        flat = {name: self.machine.get(name) for name in _MACHINE_PROPERTIES}
        for name, value in self.settings.items():
            if isinstance(value, Mapping):
                flat |= {f"{name}.{part}": nested for part, nested in value.items()}
            else:
                flat[name] = value
        return flat


def format_option(value: Any) -> str:
    """Format a setting as on the command line: `8,16`."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class StudyFolder:
    """The folder of a sweep or search: `study.json`, points or trials, and their rows.

    Args:
        path: The folder, which need not exist.
        noun: `"point"` in a sweep, `"trial"` in a search.
    """

    def __init__(self, path: str | Path, noun: str = "point") -> None:
        self.path, self.noun = Path(path), noun
        self._rows_file = f"{noun}s.json"

    def trial_folder(self, name: str) -> Path:
        """Return the folder of a point or trial."""
        return self.path / f"{self.noun}s" / name

    def read_info(self) -> StudyInfo | None:
        """Read `study.json`; `None` if the file does not exist.

        Raises:
            UserError: The file cannot be read, or was written by a different version of kdist.
        """
        content = self.read_json(STUDY_FILE)
        if content is None:
            return None
        version = content.pop("format", None) if isinstance(content, dict) else None
        if version != FORMAT:
            raise UserError(
                f"{self.path} has format {version}, but this version of kdist reads format"
                f" {FORMAT}: use the version that wrote the folder, or pass another folder"
            )
        try:
            return StudyInfo(**content)
        except TypeError as error:
            raise UserError(
                f"{self.path / STUDY_FILE} is damaged: expected kind, settings and machine of"
                " the study; pass another folder"
            ) from error

    def check_place(self) -> None:
        """Check that the folder has a study, or that a study can be created there.

        Raises:
            UserError: The folder has other files, or cannot be written.
        """
        with explain_write_errors(self.path, hint="pass another --output"):
            if self.read_info() is not None:
                return
            if self.path.is_dir() and not all(map(_is_leftover, self.path.iterdir())):
                raise UserError(
                    f"the folder {self.path} is not empty and contains no study: pass another"
                    " --output"
                )
        check_writable_folder(self.path, option="--output")

    @contextlib.contextmanager
    def open(self, info: StudyInfo, *, may_change: Collection[str] = ()) -> Iterator[bool]:
        """Create the folder, or resume the study in it, and lock the folder.

        Yields:
            Whether a study is resumed.

        Raises:
            UserError: The folder contains another study or other files, is used by another process,
                or cannot be written. Nothing is changed then.
        """
        self.check_place()
        before = self.read_info()
        changed = [] if before is None else before.find_differences(info, may_change)
        if changed:
            raise UserError(
                f"{self.path} contains another study: {'; '.join(changed)}; pass the same settings,"
                " or another --output"
            )
        with contextlib.ExitStack() as stack:
            with explain_write_errors(self.path, hint="pass another --output"):
                self.path.mkdir(parents=True, exist_ok=True)
                stack.callback(FolderLock(self.path).release)
                self.write_json(STUDY_FILE, {"format": FORMAT, **dataclasses.asdict(info)})
            yield before is not None

    def read_json(self, name: str) -> Any:
        """Read a JSON file; `None` if the file does not exist.

        Raises:
            UserError: The file cannot be read.
        """
        try:
            return json.loads(read_text(self.path / name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.path / name} is damaged ({message_without_path(error)}): pass another"
                " --output"
            ) from error

    def read_rows(self) -> list[Row]:
        """Read the rows of the points or trials that ended; see `read_json`."""
        return list(self.read_json(self._rows_file) or ())

    def write_json(self, name: str, values: Any) -> None:
        """Write a JSON file, completely or not at all."""
        atomic_write(self.path / name, to_json(values))

    def write_rows(self, rows: Sequence[Row]) -> None:
        """Write the rows of the points or trials that ended, as JSON and as CSV."""
        # In CSV, the values of a trial are columns, too; a result such as `learning_rate` wins over
        # a value with the same name.
        flat: list[Row] = [{**row, **row.get("values", {}), **row} for row in rows]
        for row in flat:
            row.pop("values", None)
        columns = dict.fromkeys(name for row in flat for name in row)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        atomic_write(self.path / f"{self.noun}s.csv", text.getvalue().encode(errors="replace"))
        self.write_json(self._rows_file, rows)


def to_json(value: Any) -> str:
    """Format as JSON; numbers that are not finite become null."""
    return json.dumps(_replace_non_finite(value), indent=1, allow_nan=False) + "\n"


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_leftover(path: Path) -> bool:
    """Whether the file was left by a process that was killed before it wrote `study.json`."""
    return path.name == ".lock" or (
        path.name.startswith(".") and path.name.endswith(f".{STUDY_FILE}")
    )
