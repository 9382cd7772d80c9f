"""What the arguments of `kdist report` name: runs, sweeps, searches and tables of measurements."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError, error_text
from ..runs.run_record import FILES, RunRecord, read_run
from ..sweep.results import SWEEP_FILE, read_sweep
from ..sweep.sweep_record import SweepRecord
from .csv_measurements import CsvMeasurements, read_csv_measurements
from .run_names import distinguish, name_runs, name_sweeps, with_sweep_name
from .search_record import SEARCH_FILE, SearchRecord, read_search
from .skipped import Skipped

_RECORD = {SWEEP_FILE, SEARCH_FILE, *FILES}


@dataclasses.dataclass(kw_only=True)
class Sources:
    """What a report is made of.

    Attributes:
        runs: Run folders, also those of runs that were killed.
        sweeps: Sweep folders.
        searches: Folders of `kdist tune`.
        measurements: CSV files of measurements.
        skipped: The rest.
    """

    runs: list[RunRecord] = dataclasses.field(default_factory=list)
    sweeps: list[SweepRecord] = dataclasses.field(default_factory=list)
    searches: list[SearchRecord] = dataclasses.field(default_factory=list)
    measurements: list[CsvMeasurements] = dataclasses.field(default_factory=list)
    skipped: list[Skipped] = dataclasses.field(default_factory=list)

    @property
    def all_runs(self) -> list[RunRecord]:
        """The run folders, those of sweeps too."""
        return [*self.runs, *(run for sweep in self.sweeps for run in sweep.runs.values())]

    def __bool__(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.runs or self.sweeps or self.searches or self.measurements)


def find_sources(paths: Sequence[str]) -> Sources:
    """Read runs, sweeps, searches and CSV files at `paths`, or at any depth in the folders there.

    Raises:
        UserError: A path does not exist or cannot be read, or there is nothing to show.
    """
    sources = Sources()
    seen: set[Path] = set()
    for text in paths:
        try:
            if not text:
                raise ValueError("the path is empty")
            children = _children(Path(text))
        except (OSError, ValueError) as error:  # also of a path that no file can have
            raise UserError(
                f"cannot read {text}: {error_text(error)}; pass folders of runs, sweeps or"
                " searches, or CSV files"
            ) from error
        for child in children:
            if child.resolve() not in seen:
                seen.add(child.resolve())
                _add(sources, child)
    if not sources:
        reasons = "; ".join(f"{one.path}: {one.reason}" for one in sources.skipped)
        raise UserError(
            f"nothing to report: {reasons or 'the folder is empty'}; pass a folder of kdist train,"
            " sweep or tune"
        )
    _name(sources)
    return sources


def _name(sources: Sources) -> None:
    """Give everything a name that nothing else of its kind has."""
    sources.runs = name_runs(sources.runs)
    sources.sweeps = name_sweeps(sources.sweeps)
    if len({run.name for run in sources.all_runs}) < len(sources.all_runs):
        sources.sweeps = [with_sweep_name(sweep) for sweep in sources.sweeps]
    sources.searches = distinguish(sources.searches)
    sources.measurements = distinguish(sources.measurements)


def _children(path: Path) -> list[Path]:
    """Return the path itself if it is a file or a record, else the records at any depth below it.

    Folders in which there are none are listed, too, as skipped.
    """
    path.stat()
    if not path.is_dir() or _is_record(path):
        return [path]
    os.scandir(path).close()  # raises an error if it cannot be read
    records: list[Path] = []
    others: list[Path] = []  # one that cannot be read is explained when it is added
    seen: set[str] = set()
    walk = os.walk(
        path, followlinks=True, onerror=lambda error: others.append(Path(error.filename))
    )
    for name, folders, files in walk:
        folder, place = Path(name), os.path.realpath(name)
        is_record = not _RECORD.isdisjoint(files)
        if place not in seen:
            (records if is_record else others).append(folder)
        if is_record or place in seen or (folder.name.startswith(".") and folder != path):
            folders.clear()
        seen.add(place)
        # Links last, so that what they lead to has its own name.
        folders.sort(key=lambda child: (os.path.islink(os.path.join(name, child)), child))
    above = {path}.union(*(record.parents for record in records))
    empty = [folder for folder in others if folder not in above and folder.parent in above]
    return [*records, *empty] or [path]


def _is_record(path: Path) -> bool:
    return any((path / name).is_file() for name in _RECORD)


def _add(sources: Sources, path: Path) -> None:
    try:
        if not path.is_dir():
            sources.measurements.append(read_csv_measurements(path))
        elif (path / SWEEP_FILE).is_file():
            sources.sweeps.append(SweepRecord.of(read_sweep(path)))
        elif (path / SEARCH_FILE).is_file():
            sources.searches.append(read_search(path))
        else:
            sources.runs.append(read_run(path, unfinished=True))
    except UserError as error:
        sources.skipped.append(Skipped.of(path, error))
    except OSError as error:
        sources.skipped.append(Skipped.of(path, f"cannot be read: {error.strerror}"))
