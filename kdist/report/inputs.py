"""What the arguments of `kdist report` name: runs, sweeps, typed numbers, and what is left out."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from ..errors import UserError
from ..runs.run_record import FILES, RunRecord, read_run
from ..runs.text import sanitize_text
from ..sweep.results import SWEEP_FILE, read_sweep
from ..sweep.sweep_record import SweepRecord
from .csv_measurements import CsvMeasurements, read_csv_measurements

_Record = TypeVar("_Record", RunRecord, SweepRecord, CsvMeasurements)


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """What the report does not show.

    Attributes:
        path: As the reader would find it.
        reason: Why.
    """

    path: str
    reason: str

    @classmethod
    def of(cls, path: Path, reason: object) -> "LeftOut":
        """Put into words that UTF-8 can hold."""
        return cls(sanitize_text(str(path)), sanitize_text(str(reason)))


@dataclasses.dataclass(kw_only=True)
class Sources:
    """What a report is made of.

    Attributes:
        runs: Run folders.
        sweeps: Sweep folders.
        typed: CSV files of numbers that a reader typed in.
        left_out: The rest.
    """

    runs: list[RunRecord] = dataclasses.field(default_factory=list)
    sweeps: list[SweepRecord] = dataclasses.field(default_factory=list)
    typed: list[CsvMeasurements] = dataclasses.field(default_factory=list)
    left_out: list[LeftOut] = dataclasses.field(default_factory=list)

    @property
    def all_runs(self) -> list[RunRecord]:
        """The run folders, those of sweeps too."""
        return [*self.runs, *(run for sweep in self.sweeps for run in sweep.runs.values())]


def find_sources(paths: Sequence[str]) -> Sources:
    """Read what `paths` name: run folders, sweep folders, CSV files, or folders of these.

    Raises:
        UserError: A path leads nowhere, or nothing at all can be shown.
    """
    sources = Sources()
    seen: set[Path] = set()
    for text in paths:
        path = Path(text)
        try:
            children = _children(path)
        except OSError as error:
            raise UserError(
                f"cannot read {text}: {error.strerror}; pass run folders, sweep folders, or CSV"
                " files"
            ) from error
        for child in children:
            if child.resolve() not in seen:
                seen.add(child.resolve())
                _add(sources, child)
    if not sources.runs and not sources.sweeps and not sources.typed:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in sources.left_out)
        raise UserError(
            f"nothing to report: {reasons or 'the folder is empty'}; pass a folder that kdist train"
            " or kdist sweep wrote"
        )
    sources.runs = _told_apart(sources.runs)
    sources.sweeps = _told_apart(sources.sweeps)
    if len({run.name for run in sources.all_runs}) < len(sources.all_runs):
        sources.sweeps = [sweep.with_named_runs() for sweep in sources.sweeps]
    sources.typed = _told_apart(sources.typed)
    return sources


def _children(path: Path) -> list[Path]:
    """The path itself if it is a file, a run or a sweep, else what the folders in it hold."""
    path.stat()
    if not path.is_dir() or _is_record(path):
        return [path]
    folders = sorted(child for child in path.iterdir() if child.is_dir())
    return [one for folder in folders for one in _below(folder)] or [path]


def _below(folder: Path) -> list[Path]:
    """Runs and sweeps in a folder of a folder; where it holds none, the folder, to be listed."""
    try:
        children = sorted(child for child in folder.iterdir() if child.is_dir())
        if not _is_record(folder) and any(_is_record(child) for child in children):
            return children
    except OSError:  # told when it is read
        pass
    return [folder]


def _is_record(path: Path) -> bool:
    return any((path / name).is_file() for name in (SWEEP_FILE, *FILES))


def _add(sources: Sources, path: Path) -> None:
    try:
        if not path.is_dir():
            sources.typed.append(read_csv_measurements(path))
        elif (path / SWEEP_FILE).is_file():
            sweep = SweepRecord.of(read_sweep(path))
            sources.sweeps.append(sweep)
            sources.left_out += [LeftOut.of(path / name, why) for name, why in sweep.left_out]
        else:
            sources.runs.append(read_run(path))
    except UserError as error:
        sources.left_out.append(LeftOut.of(path, error))
    except OSError as error:
        sources.left_out.append(LeftOut.of(path, f"unreadable: {error.strerror}"))


def _told_apart(records: list[_Record]) -> list[_Record]:
    """Give records of the same name as much of their path as tells them apart."""
    counts = Counter(record.name for record in records)
    named = []
    for record in records:
        parts, length = record.path.resolve().parts, 1
        others = [other.path.resolve().parts for other in records if other is not record]
        if counts[record.name] > 1:
            while length < len(parts) and any(o[-length:] == parts[-length:] for o in others):
                length += 1
            named.append(dataclasses.replace(record, name=sanitize_text("/".join(parts[-length:]))))
        else:
            named.append(record)
    return named
