"""The runs, sweeps and searches of a report: their folders, names and settings."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.image_files import SAMPLE
from ..errors import UserError, message_without_path
from ..study.experiment import Experiment
from ..study.search_settings import SEARCH_KIND, Search
from ..study.study_folder import STUDY_FILE, Row, StudyFolder
from ..study.sweep_kinds import EXPERIMENTS
from ..study.tables import MISSING, format_setting
from ..training.run_record import FILES, RunRecord, read_run
from ..training.settings import FOLDERS, model_name

_RECORD_FILES = {STUDY_FILE, *FILES}


@dataclasses.dataclass(kw_only=True)
class StudyRecord:
    """A sweep or search, with a row for each point or trial that ended."""

    name: str
    path: Path
    rows: Sequence[Row]

    @property
    def done(self) -> list[Row]:
        """The finished points or trials."""
        return [row for row in self.rows if row["status"] == "done"]

    @property
    def failed(self) -> list[tuple[str, str]]:
        """The names of the failed points or trials, with the reasons."""
        failed = [row for row in self.rows if row["status"] == "failed"]
        return [(str(row["name"]), str(row["error"] or "no reason")) for row in failed]


@dataclasses.dataclass(kw_only=True)
class SweepRecord(StudyRecord):
    """A sweep with its kind, settings and machine."""

    experiment: type[Experiment]
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]


@dataclasses.dataclass(kw_only=True)
class SearchRecord(StudyRecord):
    """A search with its settings."""

    search: Search


@dataclasses.dataclass(kw_only=True)
class FoundRecords:
    """The records of a report.

    Runs include killed runs and points of sweeps that train; `skipped` has the paths that are not
    shown, with the reason.
    """

    runs: list[RunRecord] = dataclasses.field(default_factory=list)
    sweeps: list[SweepRecord] = dataclasses.field(default_factory=list)
    searches: list[SearchRecord] = dataclasses.field(default_factory=list)
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def find_records(paths: Sequence[str]) -> FoundRecords:
    """Read runs, sweeps and searches at `paths`, or at any depth in the folders there."""
    sources = FoundRecords()
    folders: dict[Path, Path] = {}  # several paths may lead to the same folder
    for text in paths:
        try:
            for folder in _find_record_folders(Path(text)):
                folders.setdefault(folder.resolve(), folder)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            raise UserError(
                f"cannot read {text}: {message_without_path(error)}; pass folders of runs, sweeps"
                " or searches"
            ) from error
    for folder in folders.values():
        _read_into(sources, folder)
    if not (sources.runs or sources.sweeps or sources.searches):
        reasons = "; ".join(f"{path}: {reason}" for path, reason in sources.skipped)
        raise UserError(
            f"nothing to report: {reasons}; pass a folder of kdist train, sweep or tune"
        )
    _name_records(sources)
    return sources


def _find_record_folders(path: Path) -> list[Path]:
    """Return the outermost folders at or below the path that have a record's files."""
    path.stat()
    if path.is_dir():
        os.scandir(path).close()  # raises an error if the folder cannot be read
    folders = []
    for folder, children, files in os.walk(path):
        children[:] = sorted(child for child in children if not child.startswith("."))
        if not _RECORD_FILES.isdisjoint(files):
            folders.append(Path(folder))
            children.clear()
    return folders or [path]


def _read_into(sources: FoundRecords, path: Path) -> None:
    try:
        if not (path / STUDY_FILE).is_file():
            sources.runs.append(read_run(path, unfinished=True))
            return
        study = read_study(path)
    except (OSError, UserError) as error:
        sources.skipped.append((str(path), message_without_path(error)))
        return
    if isinstance(study, SearchRecord):
        sources.searches.append(study)
        return
    sources.sweeps.append(study)
    if study.experiment.trains:
        for run in sorted(path.glob("points/*/run")):
            _read_into(sources, run)


def read_study(path: Path) -> SweepRecord | SearchRecord:
    """Read the folder of a study."""
    info = StudyFolder(path).read_info()
    if info is None:
        raise UserError(f"{path} is not the folder of a sweep or search: {STUDY_FILE} is missing")
    name = path.resolve().name
    if info.kind == SEARCH_KIND:
        rows = StudyFolder(path, "trial").read_rows()
        try:
            search = Search.from_info(info)
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path / STUDY_FILE} is damaged, as settings of the search are missing: leave out"
                " this folder, or run the search again"
            ) from error
        return SearchRecord(name=name, path=path, search=search, rows=rows)
    if info.kind not in EXPERIMENTS:
        raise UserError(
            f"{path} has a study of the kind {info.kind!r}, which this version of kdist does not"
            " know: update kdist"
        )
    return SweepRecord(
        name=name,
        path=path,
        experiment=EXPERIMENTS[info.kind],
        settings=info.settings,
        machine=info.machine,
        rows=StudyFolder(path).read_rows(),
    )


# Settings


def name_data_set(settings: Mapping[str, object], source: object = None) -> str:
    """Name the data of a run by its settings, and by `data` of its summary, the source."""
    if settings.get("model"):  # functions with the same name may return different data
        file, _, function = str(settings.get("data") or "data").rpartition(":")
        return f"{function}() of {file or str(settings['model']).rpartition(':')[0]}"
    dataset = str(settings.get("dataset", "fashion_mnist"))
    return SAMPLE if source == SAMPLE or dataset == "sample" else dataset


def compare_settings(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Return, as text, the settings in which the runs differ."""
    settings = [
        {
            "model": model_name(run.settings),
            **{
                name: format_setting(value)
                for name, value in run.settings.items()
                if name != "model"
            },
            # Without a setting, the number of replicas depends on the machine.
            "replicas": f"{run.summary_number('replicas') or 1:.0f}",
        }
        for run in runs
    ]
    names = dict.fromkeys(name for row in settings for name in row if name not in FOLDERS)
    varied = [name for name in names if len({row.get(name, MISSING) for row in settings}) > 1]
    return [{name: row.get(name, MISSING) for name in varied} for row in settings]


# Names

# Default name of a run folder.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}-\d{6}(-\d+)?")


def _name_records(sources: FoundRecords) -> None:
    """Give each record a unique name; the name of an incomplete run ends with its status."""
    for studies in (sources.sweeps, sources.searches):
        for study, name in zip(
            studies, _unique_path_ends(study.path for study in studies), strict=True
        ):
            study.name = name
    # The run of a point is `<point>/run`: the parent folder has the point's name.
    paths = [run.path.parent if is_point(run) else run.path for run in sources.runs]
    named = zip(sources.runs, _unique_path_ends(paths), compare_settings(sources.runs), strict=True)
    sources.runs = [_rename(run, name, settings) for run, name, settings in named]


def is_point(run: RunRecord) -> bool:
    """Whether a run is a point of a sweep."""
    return run.path.parent.parent.name == "points"


def _rename(run: RunRecord, name: str, settings: Mapping[str, str]) -> RunRecord:
    if _DATE.fullmatch(run.path.name) and settings:
        words = [f"{name.replace('_', ' ')} {value}" for name, value in settings.items()]
        name += f": {', '.join(words)}"
    return dataclasses.replace(
        run, name=name if run.status == "complete" else f"{name} ({run.status})"
    )


def _unique_path_ends(paths: Iterable[Path]) -> list[str]:
    """Return the shortest end of each path that differs from the ends of all other paths."""
    places = [path.resolve().parts for path in paths]
    ends = []
    for parts in places:
        length = 1
        while (
            length < len(parts) and sum(other[-length:] == parts[-length:] for other in places) > 1
        ):
            length += 1
        ends.append("/".join(parts[-length:]))
    return ends
