"""`kdist sweep accuracy`: seconds and epochs to a target accuracy."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..analysis.groups import Row, format_spread, grouped, spread
from ..analysis.time_to_target import TimeToTarget, rows_to_target
from ..charts.tables import ResultsTable
from ..errors import UserError
from ..optimizers.scaling import scale_learning_rate
from ..runs.run_record import finite
from ..runs.text import of_workers
from .columns import Columns, is_number, is_text
from .experiment import Experiment, Point, common_settings
from .placement import Placement, placements

if TYPE_CHECKING:
    from ..charts.figure import Figures
    from ..runs.run_record import RunRecord


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracySweep(Experiment):
    """Batch sizes by rules of the learning rate by replicas by seeds.

    Args:
        train: Settings of every run, as `TrainConfig` takes them; the target, patience, time budget
            and maximum of epochs are among them.
        workers: Numbers of workers that train a point together.
        batch_sizes: Training images per batch and replica.
        lr_rules: How the learning rate follows the global batch.
        replicas: Numbers of replicas, of each worker.
        base_lr: The learning rate for a global batch of `base_batch`.
        base_batch: Training images per global batch for which `base_lr` was chosen.
        seeds: How many runs of each setting, each with another seed.
    """

    kind: ClassVar[str] = "accuracy"
    axes: ClassVar[Columns] = {"lr_rule": is_text, "seed": is_number}
    setting: ClassVar[tuple[str, ...]] = ("batch_size", "replicas", "lr_rule")
    required: ClassVar[tuple[str, ...]] = ("seconds", "epochs", "reached_target")
    trains: ClassVar[bool] = True

    batch_sizes: Sequence[int]
    lr_rules: Sequence[str]
    replicas: Sequence[int]
    base_lr: float
    base_batch: int
    seeds: int

    def __post_init__(self) -> None:
        model = self.train.get("model")
        if model is not None:
            raise UserError(
                f"received {model}, but an accuracy sweep sets the learning rate of its runs, which"
                " your own model sets itself: remove it, or run kdist sweep throughput or"
                " scaling, or kdist tune, with it"
            )

    @property
    def repetitions(self) -> int:
        """See `Experiment`."""
        return self.seeds

    def round(self, turn: int) -> list[Point]:
        """See `Experiment`."""
        places = placements(self.workers, self.replicas)
        return [
            self._point(batch, rule, place, places, turn)
            for place in places
            for rule in self.lr_rules
            for batch in self.batch_sizes
        ]

    def _point(
        self, batch: int, rule: str, place: Placement, places: Sequence[Placement], seed: int
    ) -> Point:
        global_batch = batch * place.total
        rate = scale_learning_rate(
            self.base_lr,
            global_batch=global_batch,
            reference_batch=self.base_batch,
            rule=rule,
            optimizer=self.train.get("optimizer", "sgd"),
        )
        config = {
            "noise_scale": True,
            "save_model": False,
            **common_settings(self.train, places),
            "batch_size": batch,
            "replicas": place.replicas,
            "seed": seed,
            "base_lr": rate,
            "lr_rule": "none",  # the rate is that of the global batch already
        }
        axes: dict[str, Any] = {
            "batch_size": batch,
            "replicas": place.total,
            "workers": place.workers,
            "seed": seed,
            "lr_rule": rule,
            "learning_rate": rate,
            "global_batch": global_batch,
        }
        return Point(
            name=f"b{batch}-r{place.total}-{rule}-seed{seed}",
            config=config,
            axes=axes,
            group=self.group(axes),
        )

    @classmethod
    def summarize(cls, rows: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, Any]:
        """See `Experiment`."""
        groups = sorted(grouped(rows, *cls.setting).items())
        train = settings.get("train")
        target = train.get("target_accuracy") if isinstance(train, Mapping) else None
        return {
            "target_accuracy": finite(target),
            "groups": [
                {
                    **dict(zip(cls.setting, key, strict=True)),
                    "workers": group[0]["workers"],
                    "global_batch": group[0]["global_batch"],
                    "runs": len(group),
                    "reached": sum(bool(row["reached_target"]) for row in group),
                    "diverged": sum(bool(row["diverged"]) for row in group),
                    "seconds_to_target": _interval(rows_to_target(group, "seconds")),
                    "epochs_to_target": _interval(rows_to_target(group, "epochs")),
                    "best_val_accuracy": spread(row["best_val_accuracy"] for row in group),
                    "noise_scale": spread(row["noise_scale"] for row in group),
                }
                for key, group in groups
            ],
            # It grows while a model learns, so a run that learned nothing shows little.
            "critical_batch": spread(row["noise_scale"] for row in rows if row["reached_target"])
            or spread(row["noise_scale"] for row in rows),
        }

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        """See `Experiment`."""
        if not summary["groups"]:
            return []
        note = "Seconds and epochs: median (95 % interval; of few runs its upper end, or all of it,"
        note += " is not known). Accuracy and noise scale: median (min to max)."
        critical = summary["critical_batch"]
        if critical is not None:
            note += (
                f"\nCritical batch by the gradient noise scale: {format_spread(critical, ',.0f')}"
                " images, median (min to max) of the last epochs, an order of magnitude; far larger"
                " global batches gain little."
            )
        return [
            ResultsTable(
                title=f"Time to validation accuracy above {_target(summary)}",
                columns=(
                    "batch per replica",
                    "replicas",
                    "rule",
                    "reached",
                    "seconds",
                    "epochs",
                    "best accuracy",
                    "noise scale",
                ),
                rows=[_cells(one) for one in summary["groups"]],
                note=note,
            )
        ]

    @classmethod
    def figures(
        cls,
        name: str,
        rows: Sequence[Row],
        summary: Mapping[str, Any],
        *,
        runs: Mapping[str, "RunRecord"],
        prefix: str = "",
    ) -> "Figures":
        """See `Experiment`."""
        from ..charts.sweeps import accuracy_figures

        return accuracy_figures(prefix, name, rows, summary, runs)


def _interval(found: TimeToTarget) -> dict[str, float | None]:
    return {"median": found.median, "low": found.low, "high": found.high}


def _target(summary: Mapping[str, Any]) -> str:
    target = summary["target_accuracy"]
    return "?" if target is None else f"{target:g}"


def _cells(group: Mapping[str, Any]) -> list[str]:
    return [
        f"{group['batch_size']:.0f}",
        f"{group['replicas']:.0f}{of_workers(group.get('workers'))}",
        group["lr_rule"],
        f"{group['reached']} of {group['runs']}"
        + (f", {group['diverged']} diverged" if group["diverged"] else ""),
        format_spread(group["seconds_to_target"], ",.1f") or "more than half never",
        format_spread(group["epochs_to_target"], "g") or "more than half never",
        format_spread(group["best_val_accuracy"], ".3f"),
        format_spread(group["noise_scale"], ",.0f"),
    ]
