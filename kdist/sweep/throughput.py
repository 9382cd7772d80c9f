"""`kdist sweep throughput`: images per second against the batch."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..analysis.groups import Row, format_spread, grouped, spread
from ..analysis.step_time_fit import StepTimeFit, fit_step_time
from ..charts.tables import ResultsTable
from ..errors import UserError
from ..runs.text import of_workers
from .columns import Columns, is_positive
from .experiment import Experiment, Point, common_settings
from .placement import Placement, placements

if TYPE_CHECKING:
    from ..charts.figure import Figures
    from ..runs.run_record import RunRecord

GAIN = 0.05
"""Doubling the batch has to bring this share of images per second to be worth it."""

TIMED = ("images_per_sec", "images_per_sec_low", "images_per_sec_high", "images_per_step")
"""The columns that a timed point has to have."""

TIMED_RUN = {"validate": False, "save_model": False}
"""Settings of a run that is there for its speed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputSweep(Experiment):
    """Batch sizes by replicas, a few timed epochs each, in rounds of alternating order.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        workers: Numbers of workers that train a point together.
        batch_sizes: Training images per batch and replica.
        replicas: Numbers of replicas, of each worker.
        epochs: Of each run; the first, which holds tracing, does not count.
        rounds: How often each point is run.
    """

    kind: ClassVar[str] = "throughput"
    axes: ClassVar[Columns] = {"round": is_positive}
    setting: ClassVar[tuple[str, ...]] = ("batch_size", "replicas")
    required: ClassVar[tuple[str, ...]] = TIMED

    batch_sizes: Sequence[int]
    replicas: Sequence[int]
    epochs: int
    rounds: int

    def __post_init__(self) -> None:
        check_timed(self.epochs)
        check_subset(self.train, self.timed_batch)

    @property
    def timed_batch(self) -> int:
        """See `Experiment`."""
        return max(self.batch_sizes) * max(one.total for one in self._placements)

    @property
    def repetitions(self) -> int:
        """See `Experiment`."""
        return self.rounds

    def round(self, turn: int) -> list[Point]:
        """See `Experiment`."""
        return [
            self._point(batch, place, turn)
            for place in self._placements
            for batch in self.batch_sizes
        ]

    @property
    def _placements(self) -> list[Placement]:
        return placements(self.workers, self.replicas)

    def _point(self, batch: int, place: Placement, turn: int) -> Point:
        axes = {"batch_size": batch, "replicas": place.total, "workers": place.workers}
        return Point(
            name=f"b{batch}-r{place.total}-round{turn + 1}",
            config=timed_settings(self.train, self._placements, self.epochs)
            | {"batch_size": batch, "replicas": place.replicas},
            axes={**axes, "global_batch": batch * place.total, "round": turn + 1},
            group=self.group(axes),
        )

    @classmethod
    def summarize(
        cls,
        rows: Sequence[Row],
        settings: Mapping[str, Any],  # noqa: ARG003 - rows say it all
    ) -> dict[str, Any]:
        """See `Experiment`."""
        fits = [_fit(replicas, group) for (replicas,), group in _groups(rows, "replicas")]
        return {
            "points": [
                {
                    "replicas": replicas,
                    "workers": group[0]["workers"],
                    "batch_size": batch,
                    "rounds": len(group),
                    "images_per_sec": (speed := _over_epochs(group)),
                    "step_seconds": _step_seconds(group[0]["images_per_step"], speed),
                }
                for (replicas, batch), group in _groups(rows, "replicas", "batch_size")
            ],
            "fits": [fit for fit in fits if fit is not None],
        }

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        """See `Experiment`."""
        speeds = ResultsTable(
            title="Speed",
            columns=("replicas", "batch per replica", "images/s (min to max epoch)", "rounds"),
            rows=[
                (
                    f"{one['replicas']:.0f}{of_workers(one.get('workers'))}",
                    f"{one['batch_size']:.0f}",
                    format_spread(one["images_per_sec"], ",.0f"),
                    str(one["rounds"]),
                )
                for one in summary["points"]
            ],
        )
        fits = ResultsTable(
            title="Fitted step time",
            columns=(
                "replicas",
                "overhead per step, ms",
                "rate, images/s",
                f"batch from which doubling gains under {GAIN:.0%}",
            ),
            rows=[
                (
                    f"{fit['replicas']:.0f}",
                    format_spread(fit["overhead_seconds"], ".1f", 1e3),
                    format_spread(fit["images_per_sec"], ",.0f"),
                    format_spread(fit["batch_of_diminishing_returns"], ",.0f"),
                )
                for fit in summary["fits"]
            ],
            note="Step time = overhead + global batch / rate, fitted to all rounds; in brackets,"
            " min to max of the fits to single rounds. The last column's batch is per replica.",
        )
        return [table for table in (speeds, fits) if table.rows]

    @classmethod
    def figures(
        cls,
        name: str,
        rows: Sequence[Row],
        summary: Mapping[str, Any],
        *,
        runs: Mapping[str, "RunRecord"],  # noqa: ARG003 - they only time a few epochs
        prefix: str = "",
    ) -> "Figures":
        """See `Experiment`."""
        from ..charts.sweeps import throughput_figures

        return throughput_figures(f"{prefix}{cls.kind}", name, rows, summary)


def timed_settings(
    train: Mapping[str, Any], places: Sequence[Placement], epochs: int
) -> dict[str, Any]:
    """All settings of a timed run except its batch and replicas."""
    return {**common_settings(train, places), **TIMED_RUN, "epochs": epochs}


def check_timed(epochs: int) -> None:
    """Refuse runs too short for an epoch to be timed."""
    if epochs < 2:
        raise UserError(
            f"epochs is {epochs}, but the first epoch, which holds tracing, is not timed: pass 2"
            " or more"
        )


def check_subset(train: Mapping[str, Any], largest: int) -> None:
    """Refuse a global batch that an epoch cannot fill."""
    images = train.get("subset")
    if images is not None and images < largest:
        raise UserError(
            f"subset={images} does not fill a global batch of {largest}, so that its speed cannot"
            " be measured: raise it, or drop the largest batch or number of replicas"
        )


def _groups(rows: Sequence[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    return sorted(grouped(rows, *names).items())


def _over_epochs(rows: Sequence[Row]) -> dict[str, Any]:
    """The median of the rounds, with the slowest and fastest epoch; one epoch has neither."""
    low = min(row["images_per_sec_low"] for row in rows)
    high = max(row["images_per_sec_high"] for row in rows)
    found = spread(row["images_per_sec"] for row in rows) or {}
    return found | ({"low": low, "high": high} if low < high or len(rows) > 1 else {})


def _step_seconds(images: float, speed: Mapping[str, float | None]) -> dict[str, float | None]:
    seconds = {name: images / rate if rate else None for name, rate in speed.items()}
    return {"median": seconds["median"], "low": seconds["high"], "high": seconds["low"]}


def _fit(replicas: int, rows: Sequence[Row]) -> dict[str, Any] | None:
    """The fit of all rows, with the minimum and maximum of the rounds' own fits."""
    whole = _fitted(rows)
    if whole is None:
        return None
    each = [_fitted(group) for group in grouped(rows, "round").values()]
    rounds = [fit for fit in each if fit is not None]

    def with_ends(value: float, values: list[float]) -> dict[str, float | None]:
        if len(values) < 2:  # one round has no spread
            return {"median": value, "low": None, "high": None}
        finite = [one for one in (*values, value) if math.isfinite(one)]
        return {
            "median": value,
            "low": min(finite, default=math.inf),
            "high": max(finite, default=math.inf),
        }

    return {
        "replicas": replicas,
        "overhead_seconds": with_ends(
            whole.overhead_seconds, [fit.overhead_seconds for fit in rounds]
        ),
        "images_per_sec": with_ends(whole.images_per_sec, [fit.images_per_sec for fit in rounds]),
        "batch_of_diminishing_returns": with_ends(
            whole.batch_of_diminishing_returns(GAIN) / replicas,
            [fit.batch_of_diminishing_returns(GAIN) / replicas for fit in rounds],
        ),
    }


def _fitted(rows: Sequence[Row]) -> StepTimeFit | None:
    # An epoch that the batch does not divide has a smaller last step: the mean step is what fits,
    # as the time of an epoch is linear in its steps and images.
    steps = [row["images_per_step"] for row in rows]
    if len(set(steps)) < 2:
        return None
    return fit_step_time(steps, [row["images_per_sec"] for row in rows])
