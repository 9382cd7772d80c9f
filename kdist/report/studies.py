"""Sweeps and searches as they are in their folders, finished or not."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..charts.statistics import Row, done
from ..errors import UserError
from ..study.experiment import Experiment, read_rows
from ..study.folder import STUDY_FILE, StudyFolder
from ..study.search_results import read_trials, sort_trials
from ..study.search_settings import KIND, Search, read_search
from ..study.sweep_kinds import EXPERIMENTS
from ..training.record import RunRecord, read_run, sanitize_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A sweep.

    Attributes:
        name: The name in reports.
        path: The folder.
        kind: A key of `EXPERIMENTS`.
        settings: The settings of the sweep.
        machine: The machine that ran it.
        rows: A row for each point that ended, with the columns of the kind.
        runs: The run folders of finished points, by the points' names.
        skipped: Run folders that cannot be shown, with the reason.
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
        """The kind of sweep."""
        return EXPERIMENTS[self.kind]

    @property
    def train_settings(self) -> Mapping[str, Any]:
        """The settings of every run."""
        train = self.settings.get("train")
        return train if isinstance(train, Mapping) else {}

    @property
    def done(self) -> list[Row]:
        """The finished points."""
        return done(self.rows)

    @property
    def failed(self) -> list[Row]:
        """The failed points."""
        return [row for row in self.rows if row["status"] != "done"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A search.

    Attributes:
        name: The name in reports.
        path: The folder.
        search: The settings of the search.
        trials: A row for each trial that ended, in order.
    """

    name: str
    path: Path
    search: Search
    trials: Sequence[Row]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of every trial that are not tuned."""
        return self.search.config.to_dict()

    @property
    def ranked(self) -> list[Row]:
        """The finished trials, best first."""
        return sort_trials(self.trials, self.search)

    @property
    def failed(self) -> list[Row]:
        """The failed trials."""
        return [row for row in self.trials if row["status"] == "failed"]


def read_study(path: Path) -> SweepRecord | SearchRecord:
    """Read the folder of a study.

    Raises:
        UserError: The folder is of no study, or its files cannot be read, or are of another version
            of kdist.
    """
    folder = StudyFolder(path)
    about = folder.about()
    if about is None:
        raise UserError(f"{path} is not the folder of a study: it has no {STUDY_FILE}")
    name = sanitize_text(path.resolve().name)
    if about.kind in EXPERIMENTS:
        rows = read_rows(folder, EXPERIMENTS[about.kind])
        runs, skipped = _read_runs(path, rows) if EXPERIMENTS[about.kind].trains else ({}, [])
        return SweepRecord(
            name=name,
            path=path,
            kind=about.kind,
            settings=sanitize_text(about.settings),
            machine=sanitize_text(about.machine),
            rows=rows,
            runs=runs,
            skipped=skipped,
        )
    if about.kind != KIND:
        raise UserError(f"{path} is a study of the kind {about.kind!r}, which is unknown")
    try:
        folder = StudyFolder(path, "trial")
        search = read_search(folder)
        trials = read_trials(folder, search)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"the files of its search cannot be read ({type(error).__name__}: {error}): they are"
            " damaged, or of another version of kdist"
        ) from error
    return SearchRecord(name=name, path=path, search=search, trials=trials)


def _read_runs(
    folder: Path, rows: Sequence[Row]
) -> tuple[dict[str, RunRecord], list[tuple[str, str]]]:
    """Return the runs of finished points by name, and unreadable folders with the reason."""
    runs: dict[str, RunRecord] = {}
    skipped: list[tuple[str, str]] = []
    for row in done(rows):
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
