"""`kdist sweep accuracy`: seconds and epochs to a target accuracy."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..scaling import scale_learning_rate
from .experiment import Point, Row, alike, there_and_back
from .spread import done, failure_lines, failures, grouped, spread, told
from .time_to_target import TimeToTarget, time_to_target

GROUP = ("batch_size", "replicas", "lr_rule")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracySweep:
    """Batch sizes by rules of the learning rate by replicas by seeds.

    Args:
        train: Settings of every run, as `TrainConfig` takes them; the target, patience, time budget
            and most epochs are among them.
        batch_sizes: Training images a batch and replica.
        lr_rules: How the learning rate follows the global batch.
        replicas: Numbers of replicas.
        base_lr: The learning rate that suits ...
        base_batch: ... this global batch.
        seeds: How many runs, each with another seed.
    """

    train: Mapping[str, Any]
    batch_sizes: Sequence[int]
    lr_rules: Sequence[str]
    replicas: Sequence[int]
    base_lr: float
    base_batch: int
    seeds: int
    kind: str = dataclasses.field(default="accuracy", init=False)

    @property
    def settings(self) -> dict[str, Any]:
        """See `Experiment`."""
        names = ("batch_sizes", "lr_rules", "replicas", "base_lr", "base_batch", "seeds")
        return {"train": dict(self.train)} | {name: getattr(self, name) for name in names}

    def points(self) -> list[Point]:
        """See `Experiment`."""
        return [
            point
            for seed in range(self.seeds)
            for point in there_and_back(
                [
                    self._point(batch, rule, replicas, seed)
                    for replicas in self.replicas
                    for rule in self.lr_rules
                    for batch in self.batch_sizes
                ],
                seed,
            )
        ]

    def _point(self, batch: int, rule: str, replicas: int, seed: int) -> Point:
        axes = {"batch_size": batch, "replicas": replicas, "seed": seed}
        rate = scale_learning_rate(
            self.base_lr,
            global_batch=batch * replicas,
            reference_batch=self.base_batch,
            rule=rule,
            optimizer=self.train.get("optimizer", "sgd"),
        )
        return Point(
            name=f"b{batch}-r{replicas}-{rule}-seed{seed}",
            config={
                "noise_scale": True,
                "save_model": False,
                **alike(self.train, self.replicas),
                **axes,
                "base_lr": rate,
                "lr_rule": "none",  # the rate is that of the global batch already
            },
            axes={
                **axes,
                "lr_rule": rule,
                "learning_rate": rate,
                "global_batch": batch * replicas,
            },
        )

    def measure(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `Experiment`."""
        ended = done(rows)
        groups = sorted(grouped(ended, *GROUP).items())
        return {
            "target_accuracy": self.train["target_accuracy"],
            "groups": [
                {
                    **dict(zip(GROUP, key, strict=True)),
                    "global_batch": group[0]["global_batch"],
                    "runs": len(group),
                    "reached": sum(bool(row["reached_target"]) for row in group),
                    "seconds_to_target": _interval(times_of(group, "seconds")),
                    "epochs_to_target": _interval(times_of(group, "epochs")),
                    "best_val_accuracy": spread(row["best_val_accuracy"] for row in group),
                    "noise_scale": spread(row["noise_scale"] for row in group),
                }
                for key, group in groups
            ],
            # It grows while a model learns, so a run that learned nothing says little.
            "critical_batch": spread(row["noise_scale"] for row in ended if row["reached_target"])
            or spread(row["noise_scale"] for row in ended),
            "failed": failures(rows),
        }

    def tables(self, measured: Mapping[str, Any]) -> list[Table | str]:
        """See `Experiment`."""
        table = Table(
            "batch a replica",
            "replicas",
            "rule",
            "reached",
            "seconds",
            "epochs",
            "best accuracy",
            "noise scale",
            title=f"to validation accuracy {measured['target_accuracy']:g}: median"
            " (95 % interval; ?: the runs do not tell)",
        )
        for one in measured["groups"]:
            table.add_row(
                str(one["batch_size"]),
                str(one["replicas"]),
                one["lr_rule"],
                f"{one['reached']} of {one['runs']}",
                told(one["seconds_to_target"], ",.1f") or "more than half never",
                told(one["epochs_to_target"], "g") or "more than half never",
                told(one["best_val_accuracy"], ".3f"),
                told(one["noise_scale"], ",.0f"),
            )
        critical = measured["critical_batch"]
        words: list[Table | str] = [table]
        if critical is not None:
            words.append(
                f"Critical batch by the gradient noise scale: {told(critical, ',.0f')} images,"
                " median (least to most) of the last epochs, an order of magnitude; far larger"
                " global batches gain little"
            )
        return words + list(failure_lines(measured["failed"]))

    def draw(self, rows: Sequence[Row], measured: Mapping[str, Any], folder: Path) -> list[Path]:
        """See `Experiment`."""
        from . import accuracy_charts

        ended = done(rows)
        if not ended:
            return []
        return [
            accuracy_charts.draw_times(ended, measured, folder / "accuracy.png"),
            accuracy_charts.draw_curves(ended, measured, folder),
        ]


def times_of(rows: Sequence[Row], unit: str) -> TimeToTarget:
    """The time to the target in `"seconds"` or `"epochs"`, of runs that ended."""
    reached = [bool(row["reached_target"]) for row in rows]
    durations = [
        row[f"{unit}_to_target"] if there else row[unit]
        for row, there in zip(rows, reached, strict=True)
    ]
    return time_to_target(durations, reached)


def _interval(found: TimeToTarget) -> dict[str, float | None]:
    return {"median": found.median, "low": found.low, "high": found.high}
