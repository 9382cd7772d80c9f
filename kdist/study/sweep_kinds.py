"""The kinds of sweeps: throughput, accuracy, scaling."""

import dataclasses
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from ..data.dataset_choices import MOST_IMAGES
from ..errors import UserError
from ..fields import check_fields
from ..optimizers.scaling import Rule, scale_learning_rate
from ..processes.device_assignment import visible_gpus
from ..training.config import TrainConfig
from .experiment import Counts, Experiment
from .study_folder import Row
from .tables import Spread, format_setting
from .trial import Trial

Epochs = Annotated[int, Ge(2), Le(1_000_000)]
Rounds = Annotated[int, Ge(1), Le(1000)]  # a round trains every setting
Images = Annotated[int, Ge(1), Le(MOST_IMAGES)]

_TIMED_RUN = {"validate": False, "save_model": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedSweep(Experiment):
    """A sweep of runs that time a few epochs, in rounds of alternating order.

    Every run is a process that neither validates nor saves a model.

    Args:
        epochs: Epochs of each run; the first, which includes tracing, is not timed.
        rounds: Runs of each setting.
    """

    required_columns: ClassVar[tuple[str, ...]] = ("images_per_step", "images_per_sec")

    epochs: Epochs = 3
    rounds: Rounds = 3

    @property
    def repetitions(self) -> int:
        return self.rounds

    def make_timed_point(
        self, name: str, replicas: int, batch: int, index: int, **axes: Any
    ) -> Trial:
        """Make a point of a round; `index` counts the rounds from 0."""
        config = {**self.common_settings(), **_TIMED_RUN, "epochs": self.epochs}
        name = f"{name}-r{replicas}-round{index + 1}"
        return self.make_point(name, replicas, batch, config, round=index + 1, **axes)

    @classmethod
    def summarize_setting(cls, rows: Sequence[Row], base: Sequence[Row]) -> Row:
        base_rates = {row["round"]: row["images_per_sec"] / row["replicas"] for row in base}
        return {
            "images_per_sec": Spread.of(row["images_per_sec"] for row in rows),
            "milliseconds": Spread.of(
                1e3 * row["images_per_step"] / row["images_per_sec"] for row in rows
            ),
            # Only runs of the same round are near each other in time.
            "efficiency": Spread.of(
                row["images_per_sec"] / row["replicas"] / base_rates[row["round"]]
                for row in rows
                if row["round"] in base_rates
            ),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThroughputSweep(TimedSweep):
    """Throughput, by batch size and number of replicas.

    Args:
        batch_sizes: Training images per batch and replica.
    """

    kind: ClassVar[str] = "throughput"
    setting_columns: ClassVar[tuple[str, ...]] = ("replicas", "batch_size")
    columns: ClassVar[Mapping[str, tuple[str, str]]] = {
        "Replicas": ("replicas", ".0f"),
        "Batch": ("batch_size", ".0f"),
        "Images/s": ("images_per_sec", ",.0f"),
        "Step, ms": ("milliseconds", ",.1f"),
    }
    note: ClassVar[str] = "Batch: per replica. Median (min to max) of the rounds."
    axis: ClassVar[tuple[str, str]] = ("batch_size", "Batch per replica, images")
    charts: ClassVar[Mapping[str, str]] = {
        "images_per_sec": "Images per second",
        "milliseconds": "Milliseconds per step",
    }

    batch_sizes: Counts = (8, 16, 32, 64, 128, 256, 512, 700)

    def __post_init__(self) -> None:
        check_fields(self)

    def make_round(self, index: int) -> list[Trial]:
        return [
            self.make_timed_point(f"b{batch}", replicas, batch, index)
            for replicas in self.replicas
            for batch in self.batch_sizes
        ]

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        return "Throughput"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracySweep(Experiment):
    """Time to target, by batch size, rule of the learning rate and number of replicas.

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
    setting_columns: ClassVar[tuple[str, ...]] = ("batch_size", "replicas", "lr_rule")
    required_columns: ClassVar[tuple[str, ...]] = ("seconds", "epochs", "reached_target")
    trains: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, tuple[str, str]]] = {
        "Batch": ("batch_size", ".0f"),
        "Replicas": ("replicas", ".0f"),
        "Rule": ("lr_rule", ""),
        "Reached": ("reached", ""),
        "Time to target, s": ("seconds", ",.1f"),
        "Epochs": ("epochs", "g"),
        "Best accuracy": ("accuracy", ".3f"),
    }
    note: ClassVar[str] = (
        "Batch: per replica. Median (min to max) of the seeds; runs that never reached the target"
        " count as the slowest."
    )
    axis: ClassVar[tuple[str, str]] = ("global_batch", "Global batch, images")
    charts: ClassVar[Mapping[str, str]] = {
        "seconds": "Time to target, seconds",
        "epochs": "Epochs to target",
        "accuracy": "Best validation accuracy",
    }

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
                f"{model} sets its own learning rate, so an accuracy sweep cannot vary it: use"
                " kdist sweep throughput or scaling for this model"
            )

    @property
    def repetitions(self) -> int:
        return self.seeds

    def make_round(self, index: int) -> list[Trial]:
        return [
            self._make_rule_point(batch, rule, replicas, index)
            for replicas in self.replicas
            for rule in self.lr_rules
            for batch in self.batch_sizes
        ]

    def _make_rule_point(self, batch: int, rule: str, replicas: int, seed: int) -> Trial:
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
            "lr_rule": "none",  # the rate is scaled to the global batch already
        }
        name = f"b{batch}-r{replicas}-{rule}-seed{seed}"
        axes = {"seed": seed, "lr_rule": rule, "learning_rate": rate}
        return self.make_point(name, replicas, batch, config, **axes)

    @classmethod
    def summarize_setting(cls, rows: Sequence[Row], base: Sequence[Row]) -> Row:
        diverged = sum(bool(row["diverged"]) for row in rows)
        return {
            "reached": f"{sum(time_to_target(row) < math.inf for row in rows)} of {len(rows)}"
            + (f", {diverged} diverged" if diverged else ""),
            "seconds": Spread.of(map(time_to_target, rows), statistics.median_low),
            "epochs": Spread.of(
                (time_to_target(row, "epochs") for row in rows), statistics.median_low
            ),
            "accuracy": Spread.of(row["best_val_accuracy"] for row in rows),
        }

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        target = settings["train"].get("target_accuracy")
        return f"Time to target: validation accuracy above {format_setting(target)}"


def time_to_target(row: Row, unit: str = "seconds") -> float:
    """Return the seconds or epochs to the target; infinite if the run never reached the target."""
    time = row[f"{unit}_to_target"]
    is_reached = row["reached_target"] and not row["diverged"] and time is not None
    return time if is_reached else math.inf


def default_replicas() -> list[int]:
    """Return the powers of two up to the number of GPUs, and this number; without GPUs, 1 and 2."""
    most = len(visible_gpus(os.environ)) or 2
    return sorted({most, *(2**power for power in range(most.bit_length()))})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingSweep(TimedSweep):
    """Weak and strong scaling, by number of replicas.

    Args:
        batch_size: Weak scaling: training images per batch and replica.
        global_batch: Strong scaling: training images per global batch; by default the batch size
            times the largest number of replicas.
        replicas: Numbers of replicas, compared with the smallest. By default 1, 2, 4, ... up to
            all GPUs.
        modes: weak: same batch per replica; strong: same global batch.
    """

    kind: ClassVar[str] = "scaling"
    setting_columns: ClassVar[tuple[str, ...]] = ("mode", "replicas")
    columns: ClassVar[Mapping[str, tuple[str, str]]] = {
        "Mode": ("mode", ""),
        **ThroughputSweep.columns,
        "Efficiency": ("efficiency", ".2f"),
    }
    note: ClassVar[str] = (
        f"{ThroughputSweep.note} Efficiency: images/s per replica, divided by images/s per replica"
        " of the smallest number of replicas in the same round."
    )
    axis: ClassVar[tuple[str, str]] = ("replicas", "Replicas")
    charts: ClassVar[Mapping[str, str]] = {
        "efficiency": "Efficiency",
        "images_per_sec": "Images per second",
    }

    batch_size: Images = 64
    global_batch: Images | None = None
    replicas: Counts = dataclasses.field(default_factory=default_replicas)
    modes: Sequence[Literal["weak", "strong"]] = ("weak", "strong")

    def __post_init__(self) -> None:
        check_fields(self)
        strong = self.global_batch or self.batch_size * max(self.replicas)
        uneven = [number for number in self.replicas if strong % number]
        if "strong" in self.modes and uneven:
            raise UserError(
                f"a global batch of {strong} cannot be divided evenly among {uneven[0]} replicas:"
                f" pass a global_batch that is a multiple of {math.lcm(*self.replicas)}, or other"
                " numbers of replicas"
            )
        object.__setattr__(self, "global_batch", strong)

    def make_round(self, index: int) -> list[Trial]:
        weak, strong = self.batch_size, self.global_batch or 0
        points = [(mode, replicas) for mode in self.modes for replicas in self.replicas]
        return [
            self.make_timed_point(
                mode, replicas, weak if mode == "weak" else strong // replicas, index, mode=mode
            )
            for mode, replicas in points
        ]

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        return "Efficiency"


EXPERIMENTS: dict[str, type[Experiment]] = {
    sweep.kind: sweep for sweep in (ThroughputSweep, AccuracySweep, ScalingSweep)
}
"""Each kind of sweep by its name in `study.json`."""
