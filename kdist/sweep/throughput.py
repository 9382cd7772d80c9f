"""`kdist sweep throughput`: images a second against the batch."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..errors import UserError
from .experiment import Point, Row, alike, there_and_back
from .spread import done, failure_lines, failures, grouped, spread, told
from .step_time_fit import StepTimeFit, fit_step_time

GAIN = 0.05
"""Doubling the batch has to bring this share of images a second to be worth it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputSweep:
    """Batch sizes by replicas, a few timed epochs each, in rounds that go there and back.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        batch_sizes: Training images a batch and replica.
        replicas: Numbers of replicas.
        epochs: Of each run; the first, which holds tracing, does not count.
        rounds: How often each point is run.
    """

    train: Mapping[str, Any]
    batch_sizes: Sequence[int]
    replicas: Sequence[int]
    epochs: int
    rounds: int
    kind: str = dataclasses.field(default="throughput", init=False)

    def __post_init__(self) -> None:
        check_timed(self.epochs)
        check_batches(self.train, max(self.batch_sizes) * max(self.replicas))

    @property
    def settings(self) -> dict[str, Any]:
        """See `Experiment`."""
        names = ("batch_sizes", "replicas", "epochs", "rounds")
        return {"train": dict(self.train)} | {name: getattr(self, name) for name in names}

    def points(self) -> list[Point]:
        """See `Experiment`."""
        return [
            point
            for turn in range(self.rounds)
            for point in there_and_back(
                [
                    self._point(batch, replicas, turn)
                    for replicas in self.replicas
                    for batch in self.batch_sizes
                ],
                turn,
            )
        ]

    def _point(self, batch: int, replicas: int, turn: int) -> Point:
        axes = {"batch_size": batch, "replicas": replicas}
        return Point(
            name=f"b{batch}-r{replicas}-round{turn + 1}",
            config=timed(self.train, self.replicas, self.epochs) | axes,
            axes={**axes, "global_batch": batch * replicas, "round": turn + 1},
        )

    def measure(self, rows: Sequence[Row]) -> dict[str, Any]:
        """See `Experiment`."""
        points = [
            {
                "replicas": replicas,
                "batch_size": batch,
                "rounds": len(group),
                "images_per_sec": _of_epochs(group),
            }
            for (replicas, batch), group in sorted(
                grouped(done(rows), "replicas", "batch_size").items()
            )
        ]
        fits = [_fit(replicas, group) for (replicas,), group in _by_replicas(rows)]
        return {
            "points": points,
            "fits": [fit for fit in fits if fit is not None],
            "failed": failures(rows),
        }

    def tables(self, measured: Mapping[str, Any]) -> list[Table | str]:
        """See `Experiment`."""
        speeds = Table("replicas", "batch a replica", "images/s (least to most epoch)", "rounds")
        for one in measured["points"]:
            speed = told(one["images_per_sec"], ",.0f")
            speeds.add_row(str(one["replicas"]), str(one["batch_size"]), speed, str(one["rounds"]))
        fits = Table(
            "replicas",
            "overhead of a step, ms",
            "rate, images/s",
            f"doubling the batch gains under {GAIN:.0%} from",
            title="step time = overhead + batch / rate, fitted to all rounds (least to most round)",
        )
        for fit in measured["fits"]:
            fits.add_row(
                str(fit["replicas"]),
                told(fit["overhead_seconds"], ".1f", 1e3),
                told(fit["images_per_sec"], ",.0f"),
                f"{told(fit['batch_of_diminishing_returns'], ',.0f')} images a replica",
            )
        return [speeds, *([fits] if measured["fits"] else []), *failure_lines(measured["failed"])]

    def draw(
        self,
        rows: Sequence[Row],  # noqa: ARG002 - all that is drawn is measured
        measured: Mapping[str, Any],
        folder: Path,
    ) -> list[Path]:
        """See `Experiment`."""
        from .throughput_chart import draw

        return [draw(measured, folder / "throughput.png")] if measured["points"] else []


def _of_epochs(rows: Sequence[Row]) -> dict[str, Any]:
    """The median of the rounds, with the least and most epoch; one epoch has neither."""
    low = min(row["images_per_sec_low"] for row in rows)
    high = max(row["images_per_sec_high"] for row in rows)
    found = spread(row["images_per_sec"] for row in rows) or {}
    return found | ({"low": low, "high": high} if low < high or len(rows) > 1 else {})


TIMED = {"validate": False, "save_model": False}
"""Settings of a run that is there for its speed."""


def timed(train: Mapping[str, Any], replicas: Sequence[int], epochs: int) -> dict[str, Any]:
    """All settings of such runs that their batch and replicas do not make."""
    return {**alike(train, replicas), **TIMED, "epochs": epochs}


def check_timed(epochs: int) -> None:
    """Refuse runs of which no epoch could be timed."""
    if epochs < 2:
        raise UserError(
            f"epochs is {epochs}, but the first epoch, which holds tracing, is not timed: pass 2"
            " or more"
        )


def check_batches(train: Mapping[str, Any], largest: int) -> None:
    """Refuse a global batch that an epoch cannot fill."""
    images = train.get("subset")
    if images is not None and images < largest:
        raise UserError(
            f"subset={images} does not fill a global batch of {largest}, whose speed would be told"
            " wrong: raise it, or leave out the largest batch or number of replicas"
        )


def _by_replicas(rows: Sequence[Row]) -> list[tuple[tuple[Any, ...], list[Row]]]:
    return sorted(grouped(done(rows), "replicas").items())


def _fit(replicas: int, rows: Sequence[Row]) -> dict[str, Any] | None:
    """The fit of all rows, with the least and most of the rounds' own fits."""
    whole = _fitted(rows)
    if whole is None:
        return None
    each = [_fitted(group) for group in grouped(rows, "round").values()]
    rounds = [fit for fit in each if fit is not None]

    def told_of(all_rows: float, values: list[float]) -> dict[str, float | None]:
        if len(values) < 2:  # one round tells no spread
            return {"median": all_rows, "low": None, "high": None}
        finite = [value for value in (*values, all_rows) if math.isfinite(value)]
        return {
            "median": all_rows,
            "low": min(finite, default=math.inf),
            "high": max(finite, default=math.inf),
        }

    return {
        "replicas": replicas,
        "overhead_seconds": told_of(
            whole.overhead_seconds, [fit.overhead_seconds for fit in rounds]
        ),
        "images_per_sec": told_of(whole.images_per_sec, [fit.images_per_sec for fit in rounds]),
        "batch_of_diminishing_returns": told_of(
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
