"""`Experiment`: a kind of sweep, with its points, the columns of their rows, tables and figures."""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Gt, MaxLen

from ..charts.statistics import Row
from ..charts.tables import ResultsTable
from ..errors import UserError
from ..fields import Field, fields_of
from ..performance.hardware import on_cpu
from ..runs.text import count, sanitize_text
from ..training.user_model.functions import files_of
from .folder import StudyFolder, as_list

if TYPE_CHECKING:
    from ..charts.figures import Figure


# Points ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep.

    Args:
        name: Its folder's.
        config: Settings of the run, as `TrainConfig` takes them.
        axes: The values that identify it, columns of its row.
        group: Equal for points that are repetitions of each other.
    """

    name: str
    config: Mapping[str, Any]
    axes: Mapping[str, Any]
    group: str


# Kinds ----------------------------------------------------------------------------------------

MOST_VALUES = MaxLen(100)
"""Of a setting that a sweep varies: as many runs of seconds at least, by the values of others."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(abc.ABC):
    """A kind of sweep with its settings, the fields: equal settings are the same sweep.

    A new kind is a subclass in `sweep_kinds.py`, with its charts, and a command in
    `kdist/cli/sweep.py`. It varies settings of `TrainConfig`: what is none has to become one first.
    What is computed from rows are class methods, as a report has rows and settings but no
    experiment to run.

    Attributes:
        kind: Its name, on the command line and in `study.json`.
        axes: The columns that tell its points apart besides batch and replicas.
        setting: The columns that name a setting; points that agree in them are repetitions.
        required: The columns that a point has to have when it is done.
        trains: Whether its runs are whole trainings; others only time a few epochs.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
    """

    kind: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]
    setting: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]]
    trains: ClassVar[bool] = False

    train: Mapping[str, Any]

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings, as plain data; of a model of the user's with what is in its files."""
        settings = dataclasses.asdict(self)
        model = self.train.get("model")
        if model is not None:
            files = files_of(model, self.train.get("data") or "data")
            settings["files"] = {
                file: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] for file in files
            }
        return settings

    def describe(self) -> str:
        """Describe in one line what is about to be run, such as `Sweep throughput: 8 runs (…)`."""
        hidden = ("train", "files")
        shown = {name: value for name, value in self.settings.items() if name not in hidden}
        words = [f"{name} {as_list(value)}" for name, value in shown.items()]
        return f"Sweep {self.kind}: {count(len(self.points()), 'run')} ({'; '.join(words)})"

    @classmethod
    def columns(cls) -> dict[str, Field]:
        """All columns of its rows, in the order of `points.csv`."""
        others = {*_AXES} - {*cls.axes}
        return {field.name: field for field in fields_of(PointRow) if field.name not in others}

    @property
    def timed_batch(self) -> int:
        """The largest global batch whose speed is measured, which the data have to fill."""
        return 0

    @property
    @abc.abstractmethod
    def repetitions(self) -> int:
        """How often every setting is run."""

    @abc.abstractmethod
    def round(self, turn: int) -> list[Point]:
        """A point for each setting, in order; `turn` is from 0 to `repetitions` - 1."""

    def points(self) -> list[Point]:
        """All points as they are run: every other round backwards, so that drift affects all."""
        return [
            point
            for turn in range(self.repetitions)
            for point in self.round(turn)[:: -1 if turn % 2 else 1]
        ]

    @classmethod
    def group(cls, axes: Mapping[str, Any]) -> str:
        """The setting of a point or row in words, such as `batch 8, replicas 2`."""
        words = {"batch_size": "batch ", "replicas": "replicas "}
        return ", ".join(f"{words.get(name, '')}{axes[name]}" for name in cls.setting)

    def point(
        self, name: str, replicas: int, batch: int, config: Mapping[str, Any], **axes: Any
    ) -> Point:
        """Make a point.

        Args:
            name: Its folder's.
            replicas: Their number.
            batch: Training images per batch and replica.
            config: The other settings of its run.
            **axes: The values of further columns.
        """
        axes = {
            "batch_size": batch,
            "replicas": replicas,
            "global_batch": batch * replicas,
            **axes,
        }
        config = {**config, "batch_size": batch, "replicas": replicas}
        return Point(name=name, config=config, axes=axes, group=self.group(axes))

    def common_settings(self, replicas: Sequence[int]) -> dict[str, Any]:
        """`train`, with which runs on so many replicas each differ in nothing else.

        By default a run compiles its step with XLA on one GPU and on several does not.
        """
        given = {
            name: value for name, value in self.train.items() if (name, value) != ("xla", None)
        }
        return {"xla": False, **given} if len(replicas) > 1 else given

    @classmethod
    @abc.abstractmethod
    def summarize(cls, rows: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Sum up the points that are done, as plain data.

        Args:
            rows: Of the points that are done, with the required columns.
            settings: Of the sweep, as `study.json` has them.
        """

    @classmethod
    @abc.abstractmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        """The summary as tables for printing; tables without rows are omitted."""

    @classmethod
    @abc.abstractmethod
    def figures(cls, rows: Sequence[Row], summary: Mapping[str, Any]) -> list["Figure"]:
        """The charts of the rows of points that are done, and their summary."""


def shared_cores_warning(about: dict[str, Any], rows: Sequence[Row]) -> str | None:
    """The warning for figures of several replicas that are parts of a CPU, else `None`.

    Args:
        about: What `kdist.performance.hardware.machine` found.
        rows: Of the points.
    """
    most = max((row["replicas"] for row in rows), default=1)
    if most == 1 or not on_cpu(about):
        return None
    return (
        "Replicas are logical CPUs that share this machine's cores: these figures do not measure a"
        " speed-up, only the overhead of a step on several replicas."
    )


# Rows -----------------------------------------------------------------------------------------

Positive = Annotated[float, Gt(0)]


@dataclasses.dataclass(kw_only=True)
class PointRow:
    """The columns of a point's row, in the order of `points.csv`; a kind has some of the axes."""

    # How it ended and what it ran on.
    name: str
    kind: str
    status: Literal["done", "failed"]
    error: str
    batch_size: Positive
    replicas: Positive
    global_batch: Positive
    # What else tells the points of a kind apart.
    round: Positive
    mode: str
    lr_rule: str
    seed: float
    # What is read from the folder of its run.
    learning_rate: float
    images_per_step: Positive
    images_per_sec: Positive
    images_per_sec_low: Positive
    images_per_sec_high: Positive
    seconds: Positive
    epochs: float
    diverged: bool
    reached_target: bool
    seconds_to_target: Positive
    epochs_to_target: Positive
    val_accuracy: float
    best_val_accuracy: float
    run_dir: str


_AXES = ("round", "mode", "lr_rule", "seed")


def read_rows(folder: StudyFolder, experiment: type[Experiment]) -> list[Row]:
    """Read the rows of the points of a sweep that ended; those that are invalid are left out.

    Raises:
        UserError: Their file is damaged.
    """
    names = experiment.columns()
    found = [one for one in folder.read_rows() if isinstance(one, dict)]
    rows = [{name: one.get(name) for name in names} for one in found]
    return [sanitize_text(row) for row in rows if not why_invalid(row, experiment)]


def why_invalid(row: Row, experiment: type[Experiment]) -> str:
    """Why a row cannot be used: a value of the wrong type, or one that is missing."""
    for name, column in experiment.columns().items():
        if row[name] is not None:
            try:
                column.check(row[name])
            except UserError:
                return f"it has {name} {row[name]!r}"
    required = ["name", "status"]
    if row["status"] == "done":
        required += [*experiment.setting, *experiment.required]
    missing = [name for name in required if row[name] is None]
    return f"it has no {missing[0]}" if missing else ""
