"""What a study has found so far, read from its folder without TensorFlow."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..charts.statistics import Row, done
from ..errors import UserError
from ..files import parse_json, read_text
from ..runs.record import RunRecord, read_run
from ..runs.text import sanitize_text
from .folder import STUDY_FILE, StudyFolder
from .search_settings import KIND, Objective, Search, find_objective, read_search
from .search_trials import TrialResult, best_first, read_trials
from .sweep_experiment import Experiment, invalid_value
from .sweep_kinds import EXPERIMENTS

_STATUSES = ("done", "failed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridRecord:
    """A grid as it is in its folder, finished or not.

    Attributes:
        name: Its name in reports.
        path: Its folder.
        kind: A key of `EXPERIMENTS`.
        settings: Its settings.
        machine: Where it ran.
        rows: A row for each point that ended, with the columns of the kind, by name.
        runs: The run folders of points whose training is whole, by the points' names.
        skipped: Points that cannot be shown, with the reason.
    """

    name: str
    path: Path
    kind: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    rows: Sequence[Row]
    runs: Mapping[str, RunRecord]
    skipped: Sequence[tuple[str, str]]

    @property
    def experiment(self) -> type[Experiment]:
        """Its kind."""
        return EXPERIMENTS[self.kind]

    @property
    def train_settings(self) -> Mapping[str, Any]:
        """The settings that every run was given."""
        train = self.settings.get("train")
        return train if isinstance(train, Mapping) else {}

    @property
    def done(self) -> list[Row]:
        """The points that are done."""
        return done(self.rows)

    @property
    def failed(self) -> list[Row]:
        """The points that failed."""
        return [row for row in self.rows if row["status"] != "done"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A search as it is in its folder, finished or not.

    Attributes:
        name: Its name in reports.
        path: Its folder.
        search: Its settings.
        trials: The trials that began, in order.
    """

    name: str
    path: Path
    search: Search
    trials: Sequence[TrialResult]

    @property
    def objective(self) -> Objective:
        """The metric of its scores."""
        return find_objective(self.search.objective)

    @property
    def ranked(self) -> list[TrialResult]:
        """The trials that were completed, best first."""
        return best_first(list(self.trials), self.objective)

    @property
    def failed(self) -> list[TrialResult]:
        """The trials that failed."""
        return [trial for trial in self.trials if trial.status == "FAILED"]

    @property
    def unfinished(self) -> list[TrialResult]:
        """The trials that were stopped, or are still running."""
        ended = ("COMPLETED", "FAILED")
        return [trial for trial in self.trials if trial.status not in ended]


def read_study(path: Path) -> GridRecord | SearchRecord:
    """Read the folder of a study.

    Raises:
        UserError: It is none, or its files cannot be read, or are of another version of kdist.
    """
    folder = StudyFolder(path)
    about = folder.about()
    if about is None:
        raise UserError(f"{path} is not the folder of a study: it has no {STUDY_FILE}")
    name = sanitize_text(path.resolve().name)
    if about.kind in EXPERIMENTS:
        rows, skipped = read_rows(folder, about.kind)
        runs, more = _read_runs(path, about.kind, rows)
        return GridRecord(
            name=name,
            path=path,
            kind=about.kind,
            settings=sanitize_text(about.settings),
            machine=sanitize_text(about.machine),
            rows=rows,
            runs=runs,
            skipped=[*skipped.items(), *more],
        )
    if about.kind != KIND:
        raise UserError(f"{path} is a study of the kind {about.kind!r}, which is unknown")
    try:
        search = read_search(folder)
        trials = read_trials(folder, search)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"the files of its search cannot be read ({type(error).__name__}: {error}): they are"
            " damaged, or of another version of kdist"
        ) from error
    return SearchRecord(name=name, path=path, search=search, trials=trials)


def read_rows(folder: StudyFolder, kind: str) -> tuple[list[Row], dict[str, str]]:
    """Read the rows of the points of a grid that ended.

    Returns:
        The rows, by name, and the points that have none, with the reason: they run or were killed,
        or their file is unreadable or invalid.
    """
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    for point in sorted(folder.path.glob("points/*")):
        row = _read_row(point, kind)
        if isinstance(row, str):
            skipped[point.name] = row
        else:
            rows.append(sanitize_text(row))
    return rows, skipped


def _read_row(folder: Path, kind: str) -> Row | str:
    """The row of a point's folder with the columns of its kind, or why there is none."""
    file = folder / "point.json"
    if not folder.is_dir():
        return "not a folder"
    if not file.exists():
        return "no point.json: it has not ended"
    try:
        row = parse_json(read_text(file))
    except (OSError, ValueError) as error:
        return f"point.json cannot be read: {error}"
    if not isinstance(row, dict) or not {"name", "kind", "status"} <= row.keys():
        return "point.json is not a row of a sweep"
    if row["name"] != folder.name or row["status"] not in _STATUSES:
        return f"point.json is of {row['name']!r}, status {row['status']!r}"
    if row["kind"] != kind:
        return f"point.json has kind {row['kind']!r}, not {kind!r}"
    row = {name: row.get(name) for name in EXPERIMENTS[kind].columns()}
    return why_invalid(row, kind, file="point.json") or row


def why_invalid(row: Row, kind: str, *, file: str) -> str:
    """Why a row of a file cannot be used: a value of the wrong type, or one that is missing."""
    experiment = EXPERIMENTS[kind]
    wrong = invalid_value(row, experiment.columns())
    if wrong:
        return f"{file} has {wrong}"
    missing = [n for n in (*experiment.setting, *experiment.required) if row[n] is None]
    return f"{file} has no {missing[0]}" if row["status"] == "done" and missing else ""


def _read_runs(
    folder: Path, kind: str, rows: Sequence[Row]
) -> tuple[dict[str, RunRecord], list[tuple[str, str]]]:
    """Read the run folders of the points that are done, where the grid trains.

    Returns:
        The runs by the names of their points, and run folders that cannot be shown with the reason.
    """
    runs: dict[str, RunRecord] = {}
    skipped: list[tuple[str, str]] = []
    for row in done(rows) if EXPERIMENTS[kind].trains else ():
        if row["run_dir"] is None:
            continue
        run, place = folder / row["run_dir"], f"{row['name']}: {row['run_dir']}"
        if not run.resolve().is_relative_to(folder.resolve()):
            skipped.append((place, "outside the sweep's folder"))
            continue
        try:
            runs[row["name"]] = read_run(run, name=row["name"])
        except (UserError, OSError) as error:
            skipped.append((place, str(error)))
    return runs, skipped
