"""`kdist sweep scaling`: images a second on one to many replicas, and where the time goes."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..errors import UserError
from .experiment import Point, Row, there_and_back
from .spread import done, failure_lines, failures, grouped, spread, told
from .throughput import check_batches, check_timed, timed

MODES = ("weak", "strong")
FULL = "full"
VARIANTS = {FULL: (), "without collectives": ("collectives",), "without input": ("input",)}
"""What of a step is left out; the difference to the full step is what it takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingSweep:
    """Numbers of replicas, weak and strong, in rounds that go there and back.

    Every run trains the same model in a new process: tracing falls into the first epoch, which does
    not count, nothing is validated or saved, and XLA compiles the step on no number of replicas, as
    Keras leaves it out under every strategy.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        batch_size: Weak: training images a batch and replica.
        global_batch: Strong: training images a batch, of all replicas.
        replicas: Numbers of replicas; the least is what the others are compared with.
        modes: `"weak"`, `"strong"` or both.
        epochs: Of each run; the first does not count.
        rounds: How often each point is run.
    """

    train: Mapping[str, Any]
    batch_size: int
    global_batch: int
    replicas: Sequence[int]
    modes: Sequence[str]
    epochs: int
    rounds: int
    kind: str = dataclasses.field(default="scaling", init=False)

    def __post_init__(self) -> None:
        check_timed(self.epochs)
        uneven = [count for count in self.replicas if self.global_batch % count]
        if "strong" in self.modes and uneven:
            raise UserError(
                f"a global batch of {self.global_batch} cannot be divided evenly among"
                f" {uneven[0]} replicas: pass a --global-batch that is a multiple of"
                f" {math.lcm(*self.replicas)}, or other --replicas"
            )
        weak = self.batch_size * max(self.replicas) if "weak" in self.modes else 0
        strong = self.global_batch if "strong" in self.modes else 0
        check_batches(self.train, max(weak, strong))

    @property
    def settings(self) -> dict[str, Any]:
        """See `Experiment`."""
        names = ("batch_size", "global_batch", "replicas", "modes", "epochs", "rounds")
        return {"train": dict(self.train)} | {name: getattr(self, name) for name in names}

    def points(self) -> list[Point]:
        """See `Experiment`."""
        return [
            point
            for turn in range(self.rounds)
            for point in there_and_back(
                [
                    self._point(mode, replicas, variant, turn)
                    for mode in self.modes
                    for replicas in self.replicas
                    for variant in VARIANTS
                    if replicas > 1 or "collectives" not in VARIANTS[variant]
                ],
                turn,
            )
        ]

    def _point(self, mode: str, replicas: int, variant: str, turn: int) -> Point:
        batch = self.batch_size if mode == "weak" else self.global_batch // replicas
        axes = {"batch_size": batch, "replicas": replicas}
        return Point(
            name=f"{mode}-r{replicas}-{variant.replace(' ', '-')}-round{turn + 1}",
            config=timed(self.train, self.replicas, self.epochs) | axes,
            axes={
                **axes,
                "global_batch": batch * replicas,
                "round": turn + 1,
                "mode": mode,
                "variant": variant,
            },
            leave_out=VARIANTS[variant],
        )

    def measure(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `Experiment`."""
        ended = done(rows)
        base = min((row["replicas"] for row in ended), default=0)
        return {
            "base_replicas": base,
            "points": [
                _measured(mode, replicas, group, _of(ended, mode, base))
                for (mode, replicas), group in grouped(ended, "mode", "replicas").items()
                if any(row["variant"] == FULL for row in group)
            ],
            "failed": failures(rows),
        }

    def tables(self, measured: Mapping[str, Any]) -> list[Table | str]:
        """See `Experiment`."""
        table = Table(
            "",
            "replicas",
            "batch",
            "images/s",
            "efficiency",
            "step, ms",
            "compute, ms",
            "collectives, ms",
            "input, ms",
            title="batch a replica; median (least to most round)",
        )
        for one in sorted(measured["points"], key=_by_mode):
            table.add_row(
                one["mode"],
                str(one["replicas"]),
                str(one["batch_size"]),
                told(one["images_per_sec"], ",.0f"),
                told(one["efficiency"], ".2f"),
                told(one["step_seconds"], ".1f", 1e3),
                format(1e3 * one["compute_seconds"], ".1f"),
                "none" if one["replicas"] == 1 else told(one["collectives_seconds"], ".1f", 1e3),
                told(one["input_seconds"], ".1f", 1e3),
            )
        legend = (
            "Efficiency: images/s a replica over those of"
            f" {measured['base_replicas']} replica{'s' * (measured['base_replicas'] > 1)}."
            " Collectives and input: what a step is shorter by without them (a range across 0 is"
            " noise); compute: the rest."
        )
        return [table, legend, *failure_lines(measured["failed"])]

    def draw(
        self,
        rows: Sequence[Row],  # noqa: ARG002 - all that is drawn is measured
        measured: Mapping[str, Any],
        folder: Path,
    ) -> list[Path]:
        """See `Experiment`."""
        from .scaling_chart import draw

        return [draw(measured, folder / "scaling.png")] if measured["points"] else []


def _of(rows: Sequence[Row], mode: str, replicas: int) -> list[Row]:
    return [row for row in rows if (row["mode"], row["replicas"]) == (mode, replicas)]


def _by_round(rows: Sequence[Row], variant: str) -> dict[int, Row]:
    return {row["round"]: row for row in rows if row["variant"] == variant}


def _measured(mode: str, replicas: int, rows: Sequence[Row], base: Sequence[Row]) -> dict[str, Any]:
    """What the rows of one mode and number of replicas come to, round by round."""
    full, alone = _by_round(rows, FULL), _by_round(base, FULL)
    # Ratios and differences within a round, whose runs are near each other in time.
    efficiencies = [
        (row["images_per_sec"] / replicas)
        / (alone[turn]["images_per_sec"] / alone[turn]["replicas"])
        for turn, row in full.items()
        if turn in alone
    ]
    taken = {
        part: spread(
            _step(full[turn]) - _step(row)
            for turn, row in _by_round(rows, f"without {part}").items()
            if turn in full
        )
        for part in ("collectives", "input")
    }
    if replicas == 1:
        taken["collectives"] = {"median": 0.0, "low": 0.0, "high": 0.0}
    step = spread(_step(row) for row in full.values()) or {}
    parts = [0.0 if one is None else max(one["median"], 0.0) for one in taken.values()]
    return {
        "mode": mode,
        "replicas": replicas,
        "batch_size": rows[0]["batch_size"],
        "global_batch": rows[0]["global_batch"],
        "images_per_sec": spread(row["images_per_sec"] for row in full.values()),
        "efficiency": spread(efficiencies),
        "step_seconds": step,
        "compute_seconds": max(step["median"] - sum(parts), 0.0),
        "collectives_seconds": taken["collectives"],
        "input_seconds": taken["input"],
    }


def _step(row: Row) -> float:
    return float(row["images_per_step"] / row["images_per_sec"])


def _by_mode(one: Mapping[str, Any]) -> tuple[int, int]:
    return MODES.index(one["mode"]), one["replicas"]
