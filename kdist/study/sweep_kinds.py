"""The kinds of sweeps: throughput, accuracy, scaling."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from ..charts.statistics import (
    Row,
    StepTimeFit,
    TimeToTarget,
    fit_step_time,
    format_spread,
    grouped,
    rows_to_target,
    spread,
)
from ..charts.tables import ResultsTable
from ..data.datasets import MOST_IMAGES
from ..errors import UserError
from ..fields import check_fields
from ..launch.shares import visible_gpus
from ..optimizers.scaling import Rule, scale_learning_rate
from ..training.config import TrainConfig
from ..training.console import count
from ..training.record import finite
from .experiment import Counts, Experiment
from .trial import Trial

if TYPE_CHECKING:
    from ..charts.figures import Figure


Epochs = Annotated[int, Ge(2), Le(1_000_000)]
Rounds = Annotated[int, Ge(1), Le(1000)]  # each is a training of every setting
Images = Annotated[int, Ge(1), Le(MOST_IMAGES)]

GAIN = 0.05
"""Doubling the batch has to bring this share of images per second to be worth it."""

TIMED = ("images_per_sec", "images_per_sec_low", "images_per_sec_high", "images_per_step")
"""The required columns of a timed point."""

TIMED_RUN = {"validate": False, "save_model": False}
"""Settings of a run that measures speed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedSweep(Experiment):
    """A sweep of runs that time a few epochs, in rounds of alternating order.

    Every run is a new process: tracing falls into the first epoch, which does not count, and
    nothing is validated or saved.

    Args:
        epochs: Epochs of each run; the first, which includes tracing, is not timed.
        rounds: Runs of each point.
    """

    required: ClassVar[tuple[str, ...]] = TIMED

    epochs: Epochs = 3
    rounds: Rounds = 3

    @property
    def repetitions(self) -> int:
        return self.rounds

    def timed_point(self, name: str, replicas: int, batch: int, turn: int, **axes: Any) -> Trial:
        """Make a point of a round; `turn` is from 0."""
        config = {**self.common_settings(), **TIMED_RUN, "epochs": self.epochs}
        name = f"{name}-r{replicas}-round{turn + 1}"
        return self.point(name, replicas, batch, config, round=turn + 1, **axes)

    def check_subset(self) -> None:
        """Refuse a global batch that an epoch cannot fill."""
        images = self.train.get("subset")
        if images is not None and images < self.timed_batch:
            raise UserError(
                f"subset={images} does not fill a global batch of {self.timed_batch}, so that its"
                " speed cannot be measured: raise it, or drop the largest batch or number of"
                " replicas"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputSweep(TimedSweep):
    """Batch sizes by replicas.

    Args:
        batch_sizes: Training images per batch and replica.
    """

    kind: ClassVar[str] = "throughput"
    setting: ClassVar[tuple[str, ...]] = ("batch_size", "replicas")

    batch_sizes: Counts = (8, 16, 32, 64, 128, 256, 512, 700)

    def __post_init__(self) -> None:
        check_fields(self)
        self.check_subset()

    @property
    def timed_batch(self) -> int:
        return max(self.batch_sizes) * max(self.replicas)

    def round(self, turn: int) -> list[Trial]:
        return [
            self.timed_point(f"b{batch}", replicas, batch, turn)
            for replicas in self.replicas
            for batch in self.batch_sizes
        ]

    @classmethod
    def summarize(cls, rows: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, Any]:
        fits = [_fit(replicas, group) for (replicas,), group in _groups(rows, "replicas")]
        return {
            "points": [
                {
                    "replicas": replicas,
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
        speeds = _table(
            "Speed",
            summary["points"],
            {
                "replicas": lambda row: f"{row['replicas']:.0f}",
                "batch per replica": lambda row: f"{row['batch_size']:.0f}",
                "images/s (min to max epoch)": _spread("images_per_sec", ",.0f"),
                "rounds": lambda row: str(row["rounds"]),
            },
        )
        fits = _table(
            "Fitted step time",
            summary["fits"],
            {
                "replicas": lambda fit: f"{fit['replicas']:.0f}",
                "overhead per step, ms": _spread("overhead_seconds", ".1f", 1e3),
                "rate, images/s": _spread("images_per_sec", ",.0f"),
                f"batch from which doubling gains under {GAIN:.0%}": _spread(
                    "batch_of_diminishing_returns", ",.0f"
                ),
            },
            note="Step time = overhead + global batch / rate, fitted to all rounds; in brackets,"
            " min to max of the fits to single rounds. The last column's batch is per replica.",
        )
        return [*speeds, *fits]

    @classmethod
    def figures(cls, summary: Mapping[str, Any]) -> list["Figure"]:
        from ..charts.figures import throughput_figures

        return throughput_figures(summary)


def _table(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]],
    note: str = "",
) -> list[ResultsTable]:
    """Make a table of rows, by a function from a row to the text of each column, unless empty."""
    cells = [[text(row) for text in columns.values()] for row in rows]
    return [ResultsTable(title=title, columns=list(columns), rows=cells, note=note)] if rows else []


def _spread(
    name: str, form: str, factor: float = 1.0, none: str = ""
) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: format_spread(row[name], form, factor) or none


def _groups(rows: Sequence[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    return sorted(grouped(rows, *names).items())


def _over_epochs(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the median of the rounds, with the slowest and fastest epoch if there are several."""
    low = min(row["images_per_sec_low"] for row in rows)
    high = max(row["images_per_sec_high"] for row in rows)
    found = spread(row["images_per_sec"] for row in rows) or {}
    return found | ({"low": low, "high": high} if low < high or len(rows) > 1 else {})


def _step_seconds(images: float, speed: Mapping[str, float | None]) -> dict[str, float | None]:
    seconds = {name: images / rate if rate else None for name, rate in speed.items()}
    return {"median": seconds["median"], "low": seconds["high"], "high": seconds["low"]}


def _fit(replicas: int, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Fit all rows, with the minimum and maximum of the rounds' own fits."""
    whole = _fitted(rows)
    if whole is None:
        return None
    each = [_fitted(group) for group in grouped(rows, "round").values()]
    rounds = [fit for fit in each if fit is not None]

    def with_ends(value_of: Callable[[StepTimeFit], float]) -> dict[str, float | None]:
        value = value_of(whole)
        if len(rounds) < 2:  # a single round has no spread
            return {"median": value, "low": None, "high": None}
        ends = [end for end in (*map(value_of, rounds), value) if math.isfinite(end)]
        low, high = min(ends, default=math.inf), max(ends, default=math.inf)
        return {"median": value, "low": low, "high": high}

    return {
        "replicas": replicas,
        "overhead_seconds": with_ends(lambda fit: fit.overhead_seconds),
        "images_per_sec": with_ends(lambda fit: fit.images_per_sec),
        "batch_of_diminishing_returns": with_ends(
            lambda fit: fit.batch_of_diminishing_returns(GAIN) / replicas
        ),
    }


def _fitted(rows: Sequence[Row]) -> StepTimeFit | None:
    # The mean step of an epoch, whose last step may be smaller: the time of an epoch is linear in
    # its steps and images.
    steps = [row["images_per_step"] for row in rows]
    if len(set(steps)) < 2:
        return None
    return fit_step_time(steps, [row["images_per_sec"] for row in rows])


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracySweep(Experiment):
    """Batch sizes by rules of the learning rate by replicas by seeds.

    Target, patience, time budget and maximum of epochs are among the settings in `train`.

    Args:
        batch_sizes: Training images per batch and replica.
        lr_rules: Rules that scale the learning rate with the global batch: linear, sqrt, none or
            auto.
        base_lr: The learning rate for a global batch of `base_batch`.
        base_batch: Global batch for which the learning rate was chosen.
        seeds: Runs per setting.
    """

    kind: ClassVar[str] = "accuracy"
    setting: ClassVar[tuple[str, ...]] = ("batch_size", "replicas", "lr_rule")
    required: ClassVar[tuple[str, ...]] = ("seconds", "epochs", "reached_target")
    trains: ClassVar[bool] = True

    batch_sizes: Counts = (32, 64, 128, 256, 512)
    lr_rules: Sequence[Rule] = ("linear",)
    base_lr: Annotated[float, Gt(0)] = TrainConfig.base_lr
    base_batch: Images = 32
    seeds: Rounds = 7

    def __post_init__(self) -> None:
        check_fields(self)
        model = self.train.get("model")
        if model is not None:
            raise UserError(
                f"received {model}, but an accuracy sweep sets the learning rate of its runs, which"
                " your own model sets itself: remove it, or run kdist sweep throughput or"
                " scaling with it"
            )

    @property
    def repetitions(self) -> int:
        return self.seeds

    def round(self, turn: int) -> list[Trial]:
        return [
            self._point_of_rule(batch, rule, replicas, turn)
            for replicas in self.replicas
            for rule in self.lr_rules
            for batch in self.batch_sizes
        ]

    def _point_of_rule(self, batch: int, rule: str, replicas: int, seed: int) -> Trial:
        rate = scale_learning_rate(
            self.base_lr,
            global_batch=batch * replicas,
            reference_batch=self.base_batch,
            rule=rule,
            optimizer=self.train.get("optimizer", "sgd"),
        )
        config = {
            "save_model": False,
            **self.common_settings(),
            "seed": seed,
            "base_lr": rate,
            "lr_rule": "none",  # the rate is that of the global batch already
        }
        name = f"b{batch}-r{replicas}-{rule}-seed{seed}"
        axes = {"seed": seed, "lr_rule": rule, "learning_rate": rate}
        return self.point(name, replicas, batch, config, **axes)

    @classmethod
    def summarize(cls, rows: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, Any]:
        train = settings.get("train")
        target = train.get("target_accuracy") if isinstance(train, Mapping) else None
        return {
            "target_accuracy": finite(target),
            "groups": [
                {
                    **dict(zip(cls.setting, key, strict=True)),
                    "global_batch": group[0]["global_batch"],
                    "runs": len(group),
                    "reached": sum(bool(row["reached_target"]) for row in group),
                    "diverged": sum(bool(row["diverged"]) for row in group),
                    "seconds_to_target": _interval(rows_to_target(group, "seconds")),
                    "epochs_to_target": _interval(rows_to_target(group, "epochs")),
                    "best_val_accuracy": spread(row["best_val_accuracy"] for row in group),
                }
                for key, group in _groups(rows, *cls.setting)
            ],
        }

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        target = summary["target_accuracy"]
        note = "Median (min to max); a run that never reached the target counts as the slowest."
        return _table(
            f"Time to validation accuracy above {'?' if target is None else format(target, 'g')}",
            summary["groups"],
            {
                "batch per replica": lambda row: f"{row['batch_size']:.0f}",
                "replicas": lambda row: f"{row['replicas']:.0f}",
                "rule": lambda row: str(row["lr_rule"]),
                "reached": lambda row: (
                    f"{row['reached']} of {row['runs']}"
                    + (f", {row['diverged']} diverged" if row["diverged"] else "")
                ),
                "seconds": _spread("seconds_to_target", ",.1f", none="more than half never"),
                "epochs": _spread("epochs_to_target", "g", none="more than half never"),
                "best accuracy": _spread("best_val_accuracy", ".3f"),
            },
            note=note,
        )

    @classmethod
    def figures(cls, summary: Mapping[str, Any]) -> list["Figure"]:
        from ..charts.figures import accuracy_figures

        return accuracy_figures(summary)


def _interval(found: TimeToTarget) -> dict[str, float | None]:
    return {"median": found.median, "low": found.low, "high": found.high}


def replica_counts() -> list[int]:
    """Return the powers of two up to all GPUs, and all of them; without GPUs, one and two."""
    most = len(visible_gpus(os.environ)) or 2
    return sorted({most, *(2**power for power in range(most.bit_length()))})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingSweep(TimedSweep):
    """Numbers of replicas, weak and strong.

    Args:
        batch_size: Weak scaling: training images per batch and replica.
        global_batch: Strong scaling: training images per global batch; by default the batch size
            times the largest number of replicas.
        replicas: Numbers of replicas; the others are compared with the smallest. By default 1, 2,
            4, ... up to every GPU.
        modes: weak: same batch per replica; strong: same global batch.
    """

    kind: ClassVar[str] = "scaling"
    setting: ClassVar[tuple[str, ...]] = ("mode", "batch_size", "replicas")

    batch_size: Images = 64
    global_batch: Images | None = None
    replicas: Counts = dataclasses.field(default_factory=replica_counts)
    modes: Sequence[Literal["weak", "strong"]] = ("weak", "strong")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.global_batch is not None and "strong" not in self.modes:
            raise UserError(
                f"global_batch={self.global_batch} does nothing without strong scaling: add strong"
                " to modes, or remove it"
            )
        if self.global_batch is None:
            object.__setattr__(self, "global_batch", self.batch_size * max(self.replicas))
        uneven = [number for number in self.replicas if self._strong % number]
        if "strong" in self.modes and uneven:
            raise UserError(
                f"a global batch of {self.global_batch} cannot be divided evenly among"
                f" {uneven[0]} replicas: pass a global_batch that is a multiple of"
                f" {math.lcm(*self.replicas)}, or other replicas"
            )
        self.check_subset()

    @property
    def _strong(self) -> int:
        return self.global_batch or 0

    @property
    def timed_batch(self) -> int:
        weak = self.batch_size * max(self.replicas) if "weak" in self.modes else 0
        return max(weak, self._strong if "strong" in self.modes else 0)

    def round(self, turn: int) -> list[Trial]:
        def batch(mode: str, replicas: int) -> int:
            return self.batch_size if mode == "weak" else self._strong // replicas

        return [
            self.timed_point(mode, replicas, batch(mode, replicas), turn, mode=mode)
            for mode in self.modes
            for replicas in self.replicas
        ]

    @classmethod
    def summarize(cls, rows: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, Any]:
        base = min((row["replicas"] for row in rows), default=0)
        groups = grouped(rows, "mode", "replicas")
        points = [
            _point_summary(mode, replicas, group, groups.get((mode, base), []))
            for (mode, replicas), group in groups.items()
        ]
        order = sorted(
            points, key=lambda row: (row["mode"] != "weak", row["mode"], row["replicas"])
        )
        return {"base_replicas": base, "points": order}

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        return _table(
            "Efficiency",
            summary["points"],
            {
                "mode": lambda row: str(row["mode"]),
                "replicas": lambda row: f"{row['replicas']:.0f}",
                "batch": lambda row: f"{row['batch_size']:.0f}",
                "images/s": _spread("images_per_sec", ",.0f"),
                "efficiency": _spread("efficiency", ".2f"),
                "step, ms": _spread("step_seconds", ".1f", 1e3),
            },
            note="Batch: per replica. Median (min to max round). Efficiency: images/s per"
            f" replica over those of {count(summary['base_replicas'], 'replica')}.",
        )

    @classmethod
    def figures(cls, summary: Mapping[str, Any]) -> list["Figure"]:
        from ..charts.figures import scaling_figures

        return scaling_figures(summary)


def _point_summary(
    mode: str, replicas: int, rows: Sequence[Row], base: Sequence[Row]
) -> dict[str, Any]:
    """Sum up a mode and number of replicas, compared round by round."""
    alone = {row["round"]: row["images_per_sec"] / row["replicas"] for row in base}
    # Ratios within a round, as its runs are near each other in time.
    efficiencies = [
        (row["images_per_sec"] / replicas) / alone[row["round"]]
        for row in rows
        if row["round"] in alone
    ]
    return {
        "mode": mode,
        "replicas": replicas,
        "batch_size": rows[0]["batch_size"],
        "global_batch": rows[0]["global_batch"],
        "images_per_sec": spread(row["images_per_sec"] for row in rows),
        "efficiency": spread(efficiencies),
        "step_seconds": spread(row["images_per_step"] / row["images_per_sec"] for row in rows),
    }


EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.kind: kind for kind in (ThroughputSweep, AccuracySweep, ScalingSweep)
}
"""Each kind of sweep by its name in `study.json`."""
