"""`StudyFolder`: the files of a sweep or search, and the lock of the process that works on it."""

import contextlib
import csv
import dataclasses
import fcntl
import io
import json
import math
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, error_text
from ..files import (
    atomic_write,
    check_writable_folder,
    explain_write_errors,
    parse_json,
    read_text,
)
from ..training.record import sanitize_text

Row = dict[str, Any]
"""The result of a point or trial, by column."""

STUDY_FILE = "study.json"
FORMAT = 5
_RESULTS = ("oracle.json", "best.json", "report.html")
# The properties of a machine with which speeds can be compared.
_SAME_MACHINE = ("cpu", "cores", "devices")


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """The contents of `study.json`: studies with equal contents are the same study.

    Attributes:
        kind: `"search"`, or the kind of sweep.
        settings: The settings of the study.
        machine: The machine that runs it, if its results depend on that.
    """

    kind: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def differences(self, now: "About", may_change: Collection[str] = ()) -> list[str]:
        """Compare with another study: a line per difference, such as `its depth is 10, not 16`.

        Args:
            now: The other study.
            may_change: Settings that may differ; nested settings with a dot, as `config.depth`.
        """
        if self.kind != now.kind:
            return [f"its kind is {self.kind}, not {now.kind}"]
        then, here = self._flat(), About(**json.loads(as_json(dataclasses.asdict(now))))._flat()
        changed = [name for name in sorted({*then, *here}) if then.get(name) != here.get(name)]
        found = []
        for name in changed:
            kind, _, file = name.partition(".")
            if kind != "files" and name not in may_change:
                found.append(
                    f"its {name} is {as_list(then.get(name))}, not {as_list(here.get(name))}"
                )
            elif kind == "files" and name in then and name in here:
                found.append(f"{file} has changed since")
        return found

    def _flat(self) -> dict[str, Any]:
        """The settings by name, nested ones with a dot, and the properties of the machine."""
        flat = {name: self.machine.get(name) for name in _SAME_MACHINE}
        for name, value in self.settings.items():
            if isinstance(value, Mapping):
                flat |= {f"{name}.{part}": nested for part, nested in value.items()}
            else:
                flat[name] = value
        return flat


def as_list(value: Any) -> str:
    """Format a setting as the command line takes it, such as `8,16`."""
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

    def trial(self, name: str) -> Path:
        """Return the folder of a point or trial."""
        return self.path / f"{self.noun}s" / name

    def about(self) -> About | None:
        """Read `study.json`; `None` if there is none.

        Raises:
            UserError: The file cannot be read, or is of another version of kdist.
        """
        found = self.read(STUDY_FILE)
        if found is None:
            return None
        if found.get("format") != FORMAT:
            raise UserError(
                f"{self.path} has format {found.get('format')}, this kdist reads {FORMAT}: read it"
                " with the kdist that wrote it, or pass another --output"
            )
        types = {"kind": str, "settings": dict, "machine": dict}
        if not all(isinstance(found.get(name), kind) for name, kind in types.items()):
            raise UserError(
                f"{self.path / STUDY_FILE} lacks a study's kind, settings or machine: pass another"
                " --output"
            )
        return About(**{name: found[name] for name in types})

    def check_place(self) -> bool:
        """Check that the folder has a study, or is empty or missing and can take one.

        Returns:
            Whether it has a study.

        Raises:
            UserError: The folder has other files, or cannot be written.
        """
        with explain_write_errors(self.path, hint="pass another --output"):
            if self.about() is not None:
                return True
            if self.path.is_dir() and not all(map(_is_ours, self.path.iterdir())):
                raise UserError(
                    f"the folder {self.path} is not empty and contains no study: pass another"
                    " --output"
                )
        check_writable_folder(self.path, option="--output")
        return False

    @contextlib.contextmanager
    def open(self, about: About, *, may_change: Collection[str] = ()) -> Iterator[bool]:
        """Create the folder, or resume the study in it; no other process works on it meanwhile.

        Another study, by `About.differences`, gives way if none of its points or trials has ended:
        it was stopped to be corrected.

        Yields:
            Whether a study is resumed.

        Raises:
            UserError: The folder contains another study or other files, another process works on
                it, or it cannot be written. Nothing is changed then.
        """
        before = self.about() if self.check_place() else None
        changed = [] if before is None else before.differences(about, may_change)
        if changed and (self.path / self._rows_file).exists():
            raise UserError(
                f"{self.path} contains another study: {'; '.join(changed)}; pass the same settings,"
                " or another --output"
            )
        with contextlib.ExitStack() as stack:
            with explain_write_errors(self.path, hint="pass another --output"):
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(self.alone())
                if changed:
                    shutil.rmtree(self.path / f"{self.noun}s", ignore_errors=True)
                    for name in _RESULTS:
                        (self.path / name).unlink(missing_ok=True)
                self.write(STUDY_FILE, {"format": FORMAT, **dataclasses.asdict(about)})
            yield before is not None and not changed

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from working on the study.

        Raises:
            UserError: Another process works on it.
        """
        with (self.path / ".lock").open("a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with this process
            except BlockingIOError as error:
                raise UserError(
                    f"another process works on the study in {self.path}: wait until it ends, or"
                    " pass another --output"
                ) from error
            yield

    def read(self, name: str, kind: type = dict) -> Any:
        """Read a JSON file that holds an object or a list; `None` if it does not exist.

        Raises:
            UserError: The file cannot be read, or holds something else.
        """
        try:
            found = parse_json(read_text(self.path / name))
            why = f"it is no {kind.__name__}"
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            found, why = None, error_text(error)
        if not isinstance(found, kind):
            raise UserError(f"{self.path / name} is damaged ({why}): pass another --output")
        return found

    def read_rows(self) -> list[dict[str, Any]]:
        """Read the rows of the points or trials that ended; see `read`."""
        rows = self.read(self._rows_file, list) or []
        return [sanitize_text(row) for row in rows if isinstance(row, dict)]

    def write(self, name: str, values: Any) -> None:
        """Write a JSON file, completely or not at all."""
        atomic_write(self.path / name, as_json(values))

    def write_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows of the points or trials that ended, as JSON and as CSV."""
        # The nested values of a trial are columns of their own.
        flat: list[dict[str, Any]] = [{**row, **row.get("values", {}), **row} for row in rows]
        for row in flat:
            row.pop("values", None)
        columns = dict.fromkeys(name for row in flat for name in row)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)
        atomic_write(self.path / f"{self.noun}s.csv", text.getvalue())
        self.write(self._rows_file, rows)


def as_json(value: Any) -> str:
    """Format as JSON, a number that is not finite as null."""
    return json.dumps(_finite(value), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_ours(path: Path) -> bool:
    # Left by a kill before the study was written.
    return path.name == ".lock" or (
        path.name.startswith(".") and path.name.endswith(f".{STUDY_FILE}")
    )
