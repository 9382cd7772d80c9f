"""`Experiment`: a kind of grid, all of it: points, columns, summary, tables and figures."""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen

from ..charts.statistics import Row
from ..charts.tables import ResultsTable
from ..errors import UserError
from ..launch.options import MOST_WORKERS
from ..performance.hardware import on_cpu
from ..runs.record import finite
from ..runs.text import count
from ..user_model.functions import files_of
from .folder import as_list

if TYPE_CHECKING:
    from ..charts.figures import Figure


MOST_VALUES = MaxLen(100)
"""Of a setting that a sweep varies: as many runs of seconds at least, by the values of others."""

Columns = Mapping[str, Callable[[Any], bool]]
"""Names of columns, each with the check that a value has to pass where there is one."""


def is_text(value: Any) -> bool:
    """Whether the value is a text."""
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    """Whether the value is true or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether the value is a finite number."""
    return finite(value) is not None


def is_positive(value: Any) -> bool:
    """Whether the value is a finite number above 0."""
    return (finite(value) or 0.0) > 0


POINT: Columns = {
    "name": is_text,
    "kind": is_text,
    "status": is_text,
    "error": is_text,
    "batch_size": is_positive,
    "replicas": is_positive,
    "workers": is_positive,
    "global_batch": is_positive,
}
"""What every point has: its name, how it ended and what it ran on."""

RUN: Columns = {
    "learning_rate": is_number,
    "images_per_step": is_positive,
    "images_per_sec": is_positive,
    "images_per_sec_low": is_positive,
    "images_per_sec_high": is_positive,
    "seconds": is_positive,
    "epochs": is_number,
    "diverged": is_flag,
    "reached_target": is_flag,
    "seconds_to_target": is_positive,
    "epochs_to_target": is_positive,
    "val_accuracy": is_number,
    "best_val_accuracy": is_number,
    "noise_scale": is_number,
    "run_dir": is_text,
}
"""What is read from the folder of a run."""


def invalid_value(row: Row, columns: Columns) -> str:
    """The first value that does not pass its column's check, as "name value"; empty if all do."""
    for name, passes in columns.items():
        value = row.get(name)
        if value is not None and not passes(value):
            return f"{name} {value!r}"
    return ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The workers and replicas of a point.

    Attributes:
        workers: Processes that train together.
        replicas: Of each worker.
    """

    workers: int
    replicas: int

    @property
    def total(self) -> int:
        """The replicas of all workers."""
        return self.workers * self.replicas

    def __str__(self) -> str:
        return f"{count(self.workers, 'worker')} with {count(self.replicas, 'replica')}"


def placements(workers: Sequence[int], replicas: Sequence[int]) -> list[Placement]:
    """Combine numbers of workers with numbers of replicas.

    Args:
        workers: Numbers of workers.
        replicas: Numbers of replicas of each worker.

    Raises:
        UserError: Two combinations have as many replicas in all, by which results are told apart.

    Example:
        >>> [one.total for one in placements([1, 2], [4])]
        [4, 8]
    """
    found: dict[int, Placement] = {}
    for count_of_workers in workers:
        for each in replicas:
            one = Placement(workers=count_of_workers, replicas=each)
            if one.total in found:
                raise UserError(
                    f"{found[one.total]} and {one} each have {one.total} replicas in all, by which"
                    " a sweep tells its points apart: pass one number of --workers or --replicas,"
                    " and run a sweep for each of the others"
                )
            found[one.total] = one
    return list(found.values())


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

    @property
    def workers(self) -> int:
        """How many processes train it together."""
        return int(self.axes.get("workers", 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(abc.ABC):
    """A kind of sweep with its settings, the fields: equal settings are the same sweep.

    A new kind is a subclass in `kinds.py`, with its charts, and a command in `kdist/cli/sweep.py`.
    It varies settings of `TrainConfig`: what is none has to become one first. What is computed from
    rows are class methods, as a report has rows and settings but no experiment to run.

    Attributes:
        kind: Its name, on the command line and in `study.json`.
        axes: The columns that tell its points apart besides batch and replicas.
        setting: The columns that name a setting; points that agree in them are repetitions.
        required: The columns that a point has to have when it is done.
        trains: Whether its runs are whole trainings; others only time a few epochs.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        workers: Numbers of workers, processes of this machine that train each point together.
    """

    kind: ClassVar[str]
    axes: ClassVar[Columns]
    setting: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]]
    trains: ClassVar[bool] = False

    train: Mapping[str, Any]
    workers: Annotated[Sequence[Annotated[int, Ge(1), Le(MOST_WORKERS)]], MOST_VALUES] = (1,)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings, as plain data; of a model of the user's with what is in its files."""
        settings = dataclasses.asdict(self)
        model = self.train.get("model")
        if model is not None:
            files = files_of(model, self.train.get("data") or "data")
            settings["files"] = {file: _digest(file) for file in files}
        return settings

    def describe(self) -> str:
        """Describe in one line what is about to be run, such as `Sweep throughput: 8 runs (…)`."""
        hidden = {"train", "files"} if max(self.workers) > 1 else {"train", "files", "workers"}
        values = {name: value for name, value in self.settings.items() if name not in hidden}
        words = [f"{name} {as_list(value)}" for name, value in values.items()]
        return f"Sweep {self.kind}: {count(len(self.points()), 'run')} ({'; '.join(words)})"

    @classmethod
    def columns(cls) -> Columns:
        """All columns of its rows, in the order of `points.csv`."""
        return {**POINT, **cls.axes, **RUN}

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
        """All points, in the order in which they are run."""
        return [
            point
            for turn in range(self.repetitions)
            for point in alternating_order(self.round(turn), turn)
        ]

    @classmethod
    def group(cls, axes: Mapping[str, Any]) -> str:
        """The setting of a point or row in words, such as `batch 8, replicas 2`."""
        words = {"batch_size": "batch ", "replicas": "replicas "}
        return ", ".join(f"{words.get(name, '')}{axes[name]}" for name in cls.setting)

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
        """The charts.

        Args:
            rows: Of the points that are done.
            summary: What `summarize` returned for them.
        """


ExperimentOrMaker = Experiment | Callable[[dict[str, Any]], Experiment]
"""An experiment, or a function that makes it from the description of the machine."""


def common_settings(train: Mapping[str, Any], places: Sequence[Placement]) -> dict[str, Any]:
    """Settings with which runs differ in nothing but the replicas.

    By default a run compiles its step with XLA on one GPU and on several does not.

    Args:
        train: Settings of every run.
        places: Where the points train, each with another number of replicas.
    """
    given = {name: value for name, value in train.items() if (name, value) != ("xla", None)}
    return {"xla": False, **given} if len(places) > 1 else given


def alternating_order(points: Sequence[Point], turn: int) -> list[Point]:
    """The points of a round, every other round backwards, so that drift affects all equally."""
    return list(points)[:: -1 if turn % 2 else 1]


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


def shared_cores_warning(about: dict[str, Any], rows: Sequence[Row]) -> str | None:
    """The warning for figures of several replicas that are parts of a CPU, else `None`.

    Args:
        about: What `kdist.performance.hardware.machine` found.
        rows: Of the points.
    """
    most = max((row["replicas"] for row in rows), default=1)
    if most == 1 or not on_cpu(about):
        return None
    alone = all(row["replicas"] == (row["workers"] or 1) for row in rows)
    several = "Workers are processes" if alone else "Replicas are logical CPUs"
    return (
        f"{several} that share this machine's cores: these figures do not measure a speed-up, only"
        f" the overhead of a step on several {'workers' if alone else 'replicas'}."
    )


def replica_counts(about: dict[str, Any], workers: Sequence[int] = (1,)) -> list[int]:
    """Powers of two up to all GPUs, and all of them; on a CPU, one and two.

    Of several workers, each has its share of these; several numbers of workers are compared with
    as many replicas each.

    Args:
        about: What `kdist.performance.hardware.machine` found.
        workers: Numbers of workers.
    """
    most = max((2 if on_cpu(about) else len(about["devices"])) // max(workers), 1)
    if len(workers) > 1:
        return [most]
    return sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})
