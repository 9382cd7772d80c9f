"""`kdist sweep scaling`: images per second on one to many replicas."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..analysis.groups import Row, format_spread, grouped, spread
from ..charts.tables import ResultsTable
from ..errors import UserError
from ..runs.text import count, of_workers
from .columns import Columns, is_positive, is_text
from .experiment import Experiment, Point
from .placement import Placement, placements
from .throughput import TIMED, check_subset, check_timed, timed_settings

if TYPE_CHECKING:
    from ..charts.figure import Figures
    from ..runs.run_record import RunRecord

MODES = ("weak", "strong")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingSweep(Experiment):
    """Numbers of replicas, weak and strong, in rounds of alternating order.

    Every run trains the same model in a new process: tracing falls into the first epoch, which does
    not count, nothing is validated or saved, and XLA compiles the step on no number of replicas, as
    Keras does not under any strategy.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        workers: Numbers of workers that train a point together.
        batch_size: Weak: training images per batch and replica.
        global_batch: Strong: training images per batch, of all replicas.
        replicas: Numbers of replicas, of each worker; the others are compared with the smallest.
        modes: `"weak"`, `"strong"` or both.
        epochs: Of each run; the first does not count.
        rounds: How often each point is run.
    """

    kind: ClassVar[str] = "scaling"
    axes: ClassVar[Columns] = {"round": is_positive, "mode": is_text}
    setting: ClassVar[tuple[str, ...]] = ("mode", "batch_size", "replicas")
    required: ClassVar[tuple[str, ...]] = TIMED

    batch_size: int
    global_batch: int
    replicas: Sequence[int]
    modes: Sequence[str]
    epochs: int
    rounds: int

    def __post_init__(self) -> None:
        check_timed(self.epochs)
        totals = [place.total for place in self._placements]
        uneven = [total for total in totals if self.global_batch % total]
        if "strong" in self.modes and uneven:
            raise UserError(
                f"a global batch of {self.global_batch} cannot be divided evenly among"
                f" {uneven[0]} replicas: pass a --global-batch that is a multiple of"
                f" {math.lcm(*totals)}, or other --replicas"
            )
        check_subset(self.train, self.timed_batch)

    @property
    def timed_batch(self) -> int:
        """See `Experiment`."""
        most = max(place.total for place in self._placements)
        weak = self.batch_size * most if "weak" in self.modes else 0
        return max(weak, self.global_batch if "strong" in self.modes else 0)

    @property
    def repetitions(self) -> int:
        """See `Experiment`."""
        return self.rounds

    def round(self, turn: int) -> list[Point]:
        """See `Experiment`."""
        return [self._point(mode, place, turn) for mode in self.modes for place in self._placements]

    @property
    def _placements(self) -> list[Placement]:
        return placements(self.workers, self.replicas)

    def _point(self, mode: str, place: Placement, turn: int) -> Point:
        batch = self.batch_size if mode == "weak" else self.global_batch // place.total
        axes: dict[str, Any] = {
            "batch_size": batch,
            "replicas": place.total,
            "workers": place.workers,
            "global_batch": batch * place.total,
            "round": turn + 1,
            "mode": mode,
        }
        return Point(
            name=f"{mode}-r{place.total}-round{turn + 1}",
            config=timed_settings(self.train, self._placements, self.epochs)
            | {"batch_size": batch, "replicas": place.replicas},
            axes=axes,
            group=self.group(axes),
        )

    @classmethod
    def summarize(
        cls,
        rows: Sequence[Row],
        settings: Mapping[str, Any],  # noqa: ARG003 - rows say it all
    ) -> dict[str, Any]:
        """See `Experiment`."""
        base = min((row["replicas"] for row in rows), default=0)
        points = [
            _point_summary(mode, replicas, group, _of(rows, mode, base))
            for (mode, replicas), group in grouped(rows, "mode", "replicas").items()
        ]
        return {"base_replicas": base, "points": sorted(points, key=_by_mode)}

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        """See `Experiment`."""
        if not summary["points"]:
            return []
        return [
            ResultsTable(
                title="Efficiency",
                columns=(
                    "mode",
                    "replicas",
                    "batch",
                    "images/s",
                    "efficiency",
                    "step, ms",
                ),
                rows=[_cells(one) for one in summary["points"]],
                note="Batch: per replica. Median (min to max round). Efficiency: images/s per"
                f" replica over those of {count(summary['base_replicas'], 'replica')}.",
            )
        ]

    @classmethod
    def figures(
        cls,
        name: str,
        rows: Sequence[Row],  # noqa: ARG003 - the summary has all that is drawn
        summary: Mapping[str, Any],
        *,
        runs: Mapping[str, "RunRecord"],  # noqa: ARG003 - they only time a few epochs
        prefix: str = "",
    ) -> "Figures":
        """See `Experiment`."""
        from ..charts.sweeps import scaling_figures

        return scaling_figures(f"{prefix}{cls.kind}", name, summary)


def _cells(one: Mapping[str, Any]) -> list[str]:
    return [
        one["mode"],
        f"{one['replicas']:.0f}{of_workers(one.get('workers'))}",
        f"{one['batch_size']:.0f}",
        format_spread(one["images_per_sec"], ",.0f"),
        format_spread(one["efficiency"], ".2f"),
        format_spread(one["step_seconds"], ".1f", 1e3),
    ]


def _of(rows: Sequence[Row], mode: str, replicas: int) -> list[Row]:
    return [row for row in rows if (row["mode"], row["replicas"]) == (mode, replicas)]


def _by_round(rows: Sequence[Row]) -> dict[int, Row]:
    return {row["round"]: row for row in rows}


def _point_summary(
    mode: str, replicas: int, rows: Sequence[Row], base: Sequence[Row]
) -> dict[str, Any]:
    """The summary of one mode and number of replicas, compared round by round."""
    alone = _by_round(base)
    # Ratios within a round, whose runs are near each other in time.
    efficiencies = [
        (row["images_per_sec"] / replicas)
        / (alone[turn]["images_per_sec"] / alone[turn]["replicas"])
        for turn, row in _by_round(rows).items()
        if turn in alone
    ]
    return {
        "mode": mode,
        "replicas": replicas,
        "workers": rows[0]["workers"],
        "batch_size": rows[0]["batch_size"],
        "global_batch": rows[0]["global_batch"],
        "images_per_sec": spread(row["images_per_sec"] for row in rows),
        "efficiency": spread(efficiencies),
        "step_seconds": spread(_step(row) for row in rows),
    }


def _step(row: Row) -> float:
    return float(row["images_per_step"] / row["images_per_sec"])


def _by_mode(one: Mapping[str, Any]) -> tuple[bool, str, float]:
    return one["mode"] != MODES[0], one["mode"], one["replicas"]
