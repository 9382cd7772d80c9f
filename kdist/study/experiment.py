"""`Experiment`: a kind of sweep: its points, the columns of their rows, its table and charts."""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen

from ..strategies.hardware import is_on_cpu
from ..training.console import count
from ..training.user_model.functions import files_of
from .folder import Row, StudyFolder, as_list
from .tables import MISSING, ResultsTable, Spread
from .trial import Trial

# At most a hundred values of a setting, each of which is a run of several seconds.
Counts = Annotated[Sequence[Annotated[int, Ge(1), Le(10**9)]], MaxLen(100)]

COLUMNS = (
    *("name", "kind", "status", "error", "batch_size", "replicas", "global_batch"),
    *("round", "mode", "lr_rule", "seed"),  # by the kind of sweep
    *("learning_rate", "images_per_step"),  # and the following: read from the folder of the run
    *("images_per_sec", "images_per_sec_low", "images_per_sec_high", "seconds", "epochs"),
    *("diverged", "reached_target", "seconds_to_target", "epochs_to_target"),
    *("val_accuracy", "best_val_accuracy", "run_dir"),
)
"""The columns of a point's row, in the order of `points.csv`; a kind has some of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(abc.ABC):
    """A kind of sweep; the fields are its settings, and equal settings are the same sweep.

    A new kind is a subclass in `sweep_kinds.py`, with a command in `kdist/cli/sweep.py`. It varies
    settings of `TrainConfig`. Results are class methods, as a report has rows but no experiment to
    run.

    Attributes:
        kind: The name on the command line and in `study.json`.
        setting: The columns that name a setting; points that agree in them are repetitions.
        required: The columns of every point that is done.
        trains: Whether runs are whole trainings, or only time a few epochs.
        columns: The headings of the table: a key of a result, and the format of its number.
        note: The sentences below the table.
        axis: The key of a result on the horizontal axis of the charts, and the axis's title.
        charts: The keys of the spreads that are drawn, and the titles of their charts.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        replicas: Numbers of replicas.
    """

    kind: ClassVar[str]
    setting: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]]
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
            files = files_of(model, self.train.get("data") or "data")
            settings["files"] = {
                file: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] for file in files
            }
        return settings

    def describe(self) -> str:
        """Describe the sweep in one line, such as `Sweep throughput: 8 runs (…)`."""
        own = {n: value for n, value in self.settings.items() if n not in ("train", "files")}
        words = "; ".join(f"{name} {as_list(value)}" for name, value in own.items())
        return f"Sweep {self.kind}: {count(len(self.points()), 'run')} ({words})"

    @property
    @abc.abstractmethod
    def repetitions(self) -> int:
        """The number of runs of every setting."""

    @abc.abstractmethod
    def round(self, turn: int) -> list[Trial]:
        """Return a point for each setting, in order; `turn` is from 0 to `repetitions` - 1."""

    def points(self) -> list[Trial]:
        """Return all points in order: every other round backwards, so that drift affects all."""
        return [
            point
            for turn in range(self.repetitions)
            for point in self.round(turn)[:: -1 if turn % 2 else 1]
        ]

    def point(
        self, name: str, replicas: int, batch: int, config: Mapping[str, Any], **axes: Any
    ) -> Trial:
        """Make a point.

        Args:
            name: The name of its folder.
            replicas: The number of replicas.
            batch: Training images per batch and replica.
            config: The other settings of its run.
            **axes: The values of further columns.
        """
        axes |= {"batch_size": batch, "replicas": replicas, "global_batch": batch * replicas}
        return Trial(
            name=name,
            config={**config, "batch_size": batch, "replicas": replicas},
            columns={**dict.fromkeys(COLUMNS), "name": name, "kind": self.kind, **axes},
        )

    def common_settings(self) -> dict[str, Any]:
        """Return the settings of all runs, which are compiled alike on any number of replicas.

        By default a run compiles its step with XLA on one GPU, but not on several.
        """
        given = {
            name: value for name, value in self.train.items() if (name, value) != ("xla", None)
        }
        return {"xla": False, **given} if len(self.replicas) > 1 else given

    @classmethod
    @abc.abstractmethod
    def results_of(cls, rows: Sequence[Row], base: Sequence[Row]) -> Row:
        """Return the results of a setting by key: numbers, texts and spreads.

        Args:
            rows: Its rows, with the required columns.
            base: The rows of the same setting with the smallest number of replicas.
        """

    @classmethod
    def summarize(cls, rows: Sequence[Row]) -> list[Row]:
        """Return a row for each setting, with its results.

        Args:
            rows: The rows of the points that are done, with the required columns.
        """
        others = [name for name in cls.setting if name != "replicas"]
        least = min((row["replicas"] for row in rows), default=0)
        bases = grouped((row for row in rows if row["replicas"] == least), *others)
        return [
            {
                **dict(zip(cls.setting, key, strict=True)),
                "batch_size": group[0]["batch_size"],
                "global_batch": group[0]["batch_size"] * group[0]["replicas"],
                **cls.results_of(group, bases.get(tuple(group[0][n] for n in others), [])),
            }
            for key, group in sorted(grouped(rows, *cls.setting).items())
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
            rows=[[_cell(row[k], form) for k, form in cls.columns.values()] for row in summary],
            note=cls.note,
        )


def _cell(value: Any, form: str) -> str:
    if isinstance(value, Spread):
        return value.text(form)
    return MISSING if value is None else format(value, form)


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Group rows by the values of columns, in order of first occurrence."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def shared_cores_warning(about: dict[str, Any], rows: Sequence[Row]) -> str | None:
    """Return a warning if several replicas are parts of a CPU, else `None`.

    Args:
        about: The result of `kdist.strategies.hardware.machine`.
        rows: The rows of the points.
    """
    if all(row["replicas"] == 1 for row in rows) or not is_on_cpu(about):
        return None
    return (
        "Replicas are logical CPUs that share this machine's cores: these figures do not measure a"
        " speed-up, only the overhead of a step on several replicas."
    )


def read_rows(folder: StudyFolder, experiment: type[Experiment]) -> list[Row]:
    """Read the rows of the points of a sweep that ended; invalid rows are left out.

    Raises:
        UserError: Their file is damaged.
    """
    rows = [{name: row.get(name) for name in COLUMNS} for row in folder.read_rows()]
    return [row for row in rows if not explain_invalid(row, experiment)]


def explain_invalid(row: Row, experiment: type[Experiment]) -> str:
    """Return why a row cannot be used, such as a column without a value; or an empty string."""
    if row["status"] not in ("done", "failed"):
        return f"it has status {row['status']!r}"
    required = ["name"]
    if row["status"] == "done":
        required += ["batch_size", *experiment.setting, *experiment.required]
    missing = [name for name in required if row[name] is None]
    return f"it has no {missing[0]}" if missing else ""
