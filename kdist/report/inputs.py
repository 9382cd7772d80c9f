"""The inputs of `kdist report`: runs, sweeps and searches, their names and settings."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..charts.tables import MISSING, setting
from ..data.image_files import SAMPLE
from ..errors import UserError, error_text
from ..study.folder import STUDY_FILE
from ..training.record import FILES, RunRecord, read_run, sanitize_text
from ..training.settings import FOLDERS, model_name
from .studies import SearchRecord, SweepRecord, read_study

_RECORD_FILES = {STUDY_FILE, *FILES}


@dataclasses.dataclass(kw_only=True)
class Sources:
    """The records of a report.

    Attributes:
        runs: Run folders, also of killed runs.
        sweeps: Sweep folders.
        searches: Folders of `kdist tune`.
        skipped: Paths that are not shown, with the reason.
    """

    runs: list[RunRecord] = dataclasses.field(default_factory=list)
    sweeps: list[SweepRecord] = dataclasses.field(default_factory=list)
    searches: list[SearchRecord] = dataclasses.field(default_factory=list)
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @property
    def all_runs(self) -> list[RunRecord]:
        """The run folders, also of sweeps."""
        return [*self.runs, *(run for sweep in self.sweeps for run in sweep.runs.values())]


def find_sources(paths: Sequence[str]) -> Sources:
    """Read runs, sweeps and searches at `paths`, or at any depth in the folders there.

    Raises:
        UserError: A path does not exist or cannot be read, or there is nothing to show.
    """
    sources = Sources()
    seen: set[Path] = set()
    for text in paths:
        try:
            if not text:
                raise ValueError("the path is empty")
            records = _find_records(Path(text))
        except (OSError, ValueError) as error:  # also of a path that no file can have
            raise UserError(
                f"cannot read {text}: {error_text(error)}; pass folders of runs, sweeps or searches"
            ) from error
        for record in records:
            if record.resolve() not in seen:
                seen.add(record.resolve())
                _read_into(sources, record)
    if not (sources.runs or sources.sweeps or sources.searches):
        reasons = "; ".join(f"{path}: {reason}" for path, reason in sources.skipped)
        raise UserError(
            f"nothing to report: {reasons}; pass a folder of kdist train, sweep or tune"
        )
    _name_records(sources)
    return sources


def _find_records(path: Path) -> list[Path]:
    """Return the outermost folders at or below the path that have a record's files."""
    path.stat()
    if path.is_dir():
        os.scandir(path).close()  # raises an error if it cannot be read
    found = []
    for folder, children, files in os.walk(path):
        children[:] = sorted(child for child in children if not child.startswith("."))
        if not _RECORD_FILES.isdisjoint(files):
            found.append(Path(folder))
            children.clear()
    return found or [path]


def _read_into(sources: Sources, path: Path) -> None:
    try:
        if not (path / STUDY_FILE).is_file():
            sources.runs.append(read_run(path, unfinished=True))
            return
        study = read_study(path)
        if isinstance(study, SweepRecord):
            sources.sweeps.append(study)
        else:
            sources.searches.append(study)
    except UserError as error:
        sources.skipped.append((sanitize_text(str(path)), sanitize_text(str(error))))
    except OSError as error:
        sources.skipped.append((sanitize_text(str(path)), f"cannot be read: {error.strerror}"))


# Settings


def data_set(settings: Mapping[str, object], source: object = None) -> str:
    """Name the data of a run.

    Args:
        settings: Its settings.
        source: The data that it has read, from its summary.
    """
    if settings.get("model"):  # the same function of two files may give two data sets
        file = str(settings["model"]).rpartition(":")[0]
        return f"{settings.get('data') or 'data'}() of {file}"
    dataset = str(settings.get("dataset", "fashion_mnist"))
    return SAMPLE if source == SAMPLE or dataset == "sample" else dataset


def compare_settings(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Return the settings of each run that are not the same in all, as text."""
    settings = [
        {
            "model": model_name(run.settings),
            **{name: setting(value) for name, value in run.settings.items() if name != "model"},
            "replicas": f"{run.fact('replicas') or 1:.0f}",  # the settings may leave it open
        }
        for run in runs
    ]
    names = dict.fromkeys(name for row in settings for name in row if name not in FOLDERS)
    varied = [name for name in names if len({row.get(name, MISSING) for row in settings}) > 1]
    return [{name: row.get(name, MISSING) for name in varied} for row in settings]


# Names

# The name that `kdist train` gives a folder.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}-\d{6}(-\d+)?")


def _name_records(sources: Sources) -> None:
    """Give each record a name that no other of its kind has, and mark how runs ended."""
    points = {run.path for sweep in sources.sweeps for run in sweep.runs.values()}
    runs = sources.all_runs
    # The folder of a point's run is called `run`; the folder above has the point's name.
    tails = _unique_tails(run.path.parent if run.path in points else run.path for run in runs)
    names = dict(zip((run.path for run in runs), tails, strict=True))
    for run, settings in zip(sources.runs, compare_settings(sources.runs), strict=True):
        if _DATE.fullmatch(run.path.name) and settings:
            words = [f"{name.replace('_', ' ')} {value}" for name, value in settings.items()]
            names[run.path] = f"{names[run.path]}: {', '.join(words)}"

    def rename(run: RunRecord) -> RunRecord:
        mark = "" if run.status.is_complete else f" ({run.status.word})"
        return dataclasses.replace(run, name=names[run.path] + mark)

    sources.runs = [rename(run) for run in sources.runs]
    tails = _unique_tails(sweep.path for sweep in sources.sweeps)
    sources.sweeps = [
        dataclasses.replace(
            sweep, name=tail, runs={point: rename(run) for point, run in sweep.runs.items()}
        )
        for sweep, tail in zip(sources.sweeps, tails, strict=True)
    ]
    tails = _unique_tails(search.path for search in sources.searches)
    sources.searches = [
        dataclasses.replace(search, name=tail)
        for search, tail in zip(sources.searches, tails, strict=True)
    ]


def _unique_tails(paths: Iterable[Path]) -> list[str]:
    """Return the last part of each path, and as much before it as tells it from the others."""
    places = [path.resolve().parts for path in paths]
    tails = []
    for parts in places:
        length = 1
        while length < len(parts) and sum(p[-length:] == parts[-length:] for p in places) > 1:
            length += 1
        tails.append(sanitize_text("/".join(parts[-length:])))
    return tails
