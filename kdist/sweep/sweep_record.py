"""`SweepRecord`: a sweep's rows with the run folders of its points, for charts and reports."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.groups import Row, done
from ..errors import UserError
from ..runs.run_record import RunRecord, read_run
from ..runs.text import sanitize_text
from .experiment import Experiment
from .kinds import EXPERIMENTS
from .results import Sweep


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A sweep folder, read back.

    Attributes:
        name: What the report calls it.
        path: Its folder.
        kind: A key of `EXPERIMENTS`.
        settings: Those of the sweep.
        machine: Where it ran.
        rows: A row for each point that ended.
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

    @classmethod
    def of(cls, sweep: Sweep) -> "SweepRecord":
        """Take what `read_sweep` gave, with text that UTF-8 can hold, and read the run folders."""
        rows: list[Row] = [sanitize_text(row) for row in sweep.points]
        runs, skipped = read_runs(sweep.path, sweep.kind, rows)
        return cls(
            name=sanitize_text(sweep.path.resolve().name),
            path=sweep.path,
            kind=sweep.kind,
            settings=sanitize_text(sweep.settings),
            machine=sanitize_text(sweep.machine),
            rows=rows,
            runs=runs,
            skipped=[*sweep.skipped.items(), *skipped],
        )

    @property
    def experiment(self) -> type[Experiment]:
        """Its kind of sweep."""
        return EXPERIMENTS[self.kind]

    @property
    def train_settings(self) -> Mapping[str, Any]:
        """The settings that every run of the sweep was given."""
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


def read_runs(
    folder: Path, kind: str, rows: Sequence[Row]
) -> tuple[dict[str, RunRecord], list[tuple[str, str]]]:
    """Read the run folders of the points that are done, where the sweep trains.

    Args:
        folder: The sweep's.
        kind: Of the sweep.
        rows: Of its points.

    Returns:
        The runs by the names of their points, and run folders that cannot be shown with the reason.
    """
    runs: dict[str, RunRecord] = {}
    skipped: list[tuple[str, str]] = []
    for row in rows if EXPERIMENTS[kind].trains else ():
        if row["run_dir"] is None or row["status"] != "done":
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
