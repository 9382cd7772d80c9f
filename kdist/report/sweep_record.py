"""`SweepRecord`: a sweep's rows, checked and put into groups, and the run folders of its points."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .run_record import RunRecord, finite, read_run
from .wording import count, readable

if TYPE_CHECKING:
    from ..sweep.results import Sweep

SWEEP_FILE = "sweep.json"
FULL_STEP = "full"
"""The variant of a scaling sweep that leaves nothing out of a step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Points that differ in seed or round only.

    Attributes:
        series: What a chart draws as one line: how the sweep's other choices differ, in words.
        batch_size: Images a replica.
        replicas: Replicas.
        rows: The points, at least one.
    """

    series: str
    batch_size: float
    replicas: float
    rows: Sequence[Mapping[str, Any]]

    @property
    def global_batch(self) -> float:
        """Images a step."""
        return self.batch_size * self.replicas

    @property
    def images_per_step(self) -> float:
        """The mean step's images, fewer where the batch does not divide an epoch."""
        return self.median("images_per_step") or self.global_batch

    def values(self, column: str) -> list[float]:
        """The numbers of a column, points without one left out."""
        return [row[column] for row in self.rows if row.get(column) is not None]

    def median(self, column: str) -> float | None:
        """Their median."""
        found = self.values(column)
        return statistics.median(found) if found else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A sweep folder, read back.

    Attributes:
        name: What the report calls it.
        path: Its folder.
        kind: `"throughput"`, `"accuracy"` or `"scaling"`.
        settings: What was asked for.
        machine: Where it ran.
        rows: A point each; what is no number where one belongs is `None`.
        runs: The run folders of an accuracy sweep's points.
        left_out: Points that cannot be shown, with the reason.
    """

    name: str
    path: Path
    kind: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    runs: Sequence[RunRecord]
    left_out: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, sweep: "Sweep") -> "SweepRecord":
        """Check what `read_sweep` gave, and read the run folders."""
        rows = [_checked(readable(row)) for row in sweep.points]
        runs, left_out = [], list(sweep.left_out.items())
        for row in rows:
            # The runs of the other kinds only time a few epochs and validate nothing.
            if sweep.kind != "accuracy" or row["run_dir"] is None or row["status"] != "done":
                continue
            run = sweep.path / row["run_dir"]
            if not run.resolve().is_relative_to(sweep.path.resolve()):
                left_out.append((f"{row['name']}: {row['run_dir']}", "outside the sweep's folder"))
                continue
            try:
                runs.append(read_run(run, name=row["name"]))
            except (UserError, OSError) as error:
                left_out.append((f"{row['name']}: {row['run_dir']}", str(error)))
        return cls(
            name=readable(sweep.path.resolve().name),
            path=sweep.path,
            kind=sweep.kind,
            settings=readable(sweep.settings),
            machine=readable(sweep.machine),
            rows=rows,
            runs=runs,
            left_out=left_out,
        )

    def with_named_runs(self) -> "SweepRecord":
        """The same, each run named after the sweep too."""
        runs = [dataclasses.replace(run, name=f"{self.name}/{run.name}") for run in self.runs]
        return dataclasses.replace(self, runs=runs)

    @property
    def train_settings(self) -> Mapping[str, Any]:
        """The settings that every run of the sweep was given."""
        train = self.settings.get("train")
        return train if isinstance(train, Mapping) else {}

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The points that failed."""
        return [row for row in self.rows if row["status"] != "done"]

    @cached_property
    def groups(self) -> list[Group]:
        """The points that are done, by what they have in common, small batches first."""
        done = [row for row in self.rows if row["status"] == "done" and row["batch_size"]]
        varied = [
            name
            for name in ("variant", "mode", "lr_rule", "replicas")
            if len({row[name] for row in done}) > 1
            and not (name == "replicas" and self.kind == "scaling")
        ]
        found: dict[tuple[str, float, float], list[Mapping[str, Any]]] = {}
        for row in done:
            key = (_series(row, varied), row["batch_size"], row["replicas"] or 1)
            found.setdefault(key, []).append(row)
        groups = [
            Group(series=series, batch_size=batch, replicas=replicas, rows=rows)
            for (series, batch, replicas), rows in found.items()
        ]
        return sorted(groups, key=lambda group: (group.series, group.replicas, group.batch_size))


def _series(row: Mapping[str, Any], varied: Sequence[str]) -> str:
    words = {
        "variant": row["variant"],
        "mode": f"{row['mode']} scaling",
        "lr_rule": f"rule {row['lr_rule']}",
        "replicas": count(row["replicas"] or 1, "replica"),
    }
    return ", ".join(str(words[name]) for name in varied) or "measured"


def _checked(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its numbers finite and above 0, `None` in the place of others."""
    checked: dict[str, Any] = {}
    for name, value in row.items():
        number = finite(value)
        if name == "reached_target" or isinstance(value, str):
            checked[name] = value
        else:
            # Counts and speeds alike are above 0.
            checked[name] = (
                number if number is not None and (number > 0 or _at_zero(name)) else None
            )
    return checked


def _at_zero(name: str) -> bool:
    return name in ("seed", "round", "val_accuracy", "best_val_accuracy", "learning_rate")
