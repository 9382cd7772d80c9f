"""`Experiment`: base class of the kinds of sweeps in `sweep_kinds.py`.

A kind decides the points of a sweep, the columns of their rows, the table and the charts.
"""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen

from ..strategies.hardware import is_on_cpu
from ..training.printed_lines import format_count
from ..training.user_model.user_functions import list_user_files
from .study_folder import Row, format_option
from .tables import MISSING, ResultsTable, Spread
from .trial import Trial

# At most a hundred values of a setting, as every value is a run of several seconds.
Counts = Annotated[Sequence[Annotated[int, Ge(1), Le(10**9)]], MaxLen(100)]

POINT_COLUMNS = (
    *("name", "kind", "status", "error", "batch_size", "replicas", "global_batch"),
    *("round", "mode", "lr_rule", "seed"),  # depend on the kind of sweep
    *("learning_rate", "images_per_step"),  # from here on, read from the run's folder
    *("images_per_sec", "seconds", "epochs"),
    *("diverged", "reached_target", "seconds_to_target", "epochs_to_target"),
    *("val_accuracy", "best_val_accuracy", "run_dir"),
)
"""The columns of a point's row, in the order of `points.csv`; a kind has some of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(abc.ABC):
    """A kind of sweep; its fields are the settings. Sweeps with equal settings are the same sweep.

    A new kind is a subclass in `sweep_kinds.py`, with a command in `kdist/cli/sweep.py`. Methods
    for results are class methods: a report has the rows of a sweep, but no `Experiment` object.

    Attributes:
        kind: The name on the command line and in `study.json`.
        setting_columns: The columns that identify a setting; points with equal values in these
            columns repeat the setting.
        required_columns: The columns without which a point has failed.
        trains: Whether runs are whole trainings, instead of a few timed epochs.
        columns: For each heading of the table, the key of a result and the format of its number.
        note: The sentences below the table.
        axis: The key of the result on the horizontal axis of the charts, and the axis's label.
        charts: The title of each chart, by the key of the spread that the chart shows.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        replicas: Numbers of replicas.
    """

    kind: ClassVar[str]
    setting_columns: ClassVar[tuple[str, ...]]
    required_columns: ClassVar[tuple[str, ...]]
    trains: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, tuple[str, str]]]
    note: ClassVar[str]
    axis: ClassVar[tuple[str, str]]
    charts: ClassVar[Mapping[str, str]]

    train: Mapping[str, Any]
    replicas: Counts = (1,)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings as plain data, with hashes of the files of a user's model."""
        settings = dataclasses.asdict(self)
        model = self.train.get("model")
        if model is not None:
            files = list_user_files(model, self.train.get("data") or "data")
            settings["files"] = {
                file: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] for file in files
            }
        return settings

    def describe(self) -> str:
        """Describe the sweep in one line, such as `Sweep throughput: 8 runs (…)`."""
        settings_text = "; ".join(
            f"{name} {format_option(value)}"
            for name, value in self.settings.items()
            if name not in ("train", "files")
        )
        return (
            f"Sweep {self.kind}: {format_count(len(self.make_points()), 'run')} ({settings_text})"
        )

    @property
    @abc.abstractmethod
    def repetitions(self) -> int:
        """The number of rounds; a round has a run of every setting."""

    @abc.abstractmethod
    def make_round(self, index: int) -> list[Trial]:
        """Make the points of a round, one for each setting; `index` counts from 0."""

    def make_points(self) -> list[Trial]:
        """Make all points; every second round is reversed.

        So a machine that slows down affects all settings equally.
        """
        return [
            point
            for index in range(self.repetitions)
            for point in self.make_round(index)[:: -1 if index % 2 else 1]
        ]

    def make_point(
        self, name: str, replicas: int, batch: int, config: Mapping[str, Any], **axes: Any
    ) -> Trial:
        """Make a point.

        Args:
            name: The name of the point's folder.
            replicas: The number of replicas.
            batch: Training images per batch and replica.
            config: Further settings of the run.
            **axes: The values of further columns.
        """
        axes |= {"batch_size": batch, "replicas": replicas, "global_batch": batch * replicas}
        return Trial(
            name=name,
            config={**config, "batch_size": batch, "replicas": replicas},
            columns={**dict.fromkeys(POINT_COLUMNS), "name": name, "kind": self.kind, **axes},
        )

    def common_settings(self) -> dict[str, Any]:
        """Return the settings of all runs: without XLA if numbers of replicas are compared.

        By default, a run compiles its step with XLA on a single GPU, but not on several.
        """
        settings = {
            name: value for name, value in self.train.items() if (name, value) != ("xla", None)
        }
        return {"xla": False, **settings} if len(self.replicas) > 1 else settings

    @classmethod
    @abc.abstractmethod
    def summarize_setting(cls, rows: Sequence[Row], base: Sequence[Row]) -> Row:
        """Return the results of a setting by key: numbers, texts and spreads.

        Args:
            rows: The rows of the setting.
            base: The rows of the same setting with the smallest number of replicas.
        """

    @classmethod
    def summarize(cls, rows: Sequence[Row]) -> list[Row]:
        """Return a row for each setting, with its results.

        Args:
            rows: The rows of the points that are done.
        """
        other_settings = [name for name in cls.setting_columns if name != "replicas"]
        least = min((row["replicas"] for row in rows), default=0)
        bases = group_rows((row for row in rows if row["replicas"] == least), *other_settings)
        return [
            {
                **dict(zip(cls.setting_columns, key, strict=True)),
                "batch_size": group[0]["batch_size"],
                "global_batch": group[0]["batch_size"] * group[0]["replicas"],
                **cls.summarize_setting(
                    group, bases.get(tuple(group[0][name] for name in other_settings), [])
                ),
            }
            for key, group in sorted(group_rows(rows, *cls.setting_columns).items())
        ]

    @classmethod
    @abc.abstractmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        """Return the title of the table of a sweep with these settings."""

    @classmethod
    def table(cls, summary: Sequence[Row], settings: Mapping[str, Any]) -> ResultsTable:
        """Return the results of `summarize` as a table."""
        return ResultsTable(
            title=cls.title(settings),
            columns=list(cls.columns),
            rows=[
                [_format_cell(row[key], spec) for key, spec in cls.columns.values()]
                for row in summary
            ],
            note=cls.note,
        )


def _format_cell(value: Any, spec: str) -> str:
    if isinstance(value, Spread):
        return value.format(spec)
    return MISSING if value is None else format(value, spec)


def group_rows(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by the values of columns, in order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def describe_shared_cores(machine: Mapping[str, Any], rows: Sequence[Row]) -> str | None:
    """Return a warning if several replicas are parts of a CPU, else `None`.

    Args:
        machine: The result of `kdist.strategies.hardware.describe_machine`.
        rows: The rows of the points.
    """
    if all(row["replicas"] == 1 for row in rows) or not is_on_cpu(machine):
        return None
    return (
        "Replicas are logical CPUs that share this machine's cores: these figures do not measure a"
        " speed-up, only the overhead of a step on several replicas."
    )
