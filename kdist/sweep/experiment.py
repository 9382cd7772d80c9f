"""`Experiment`: a kind of sweep, all of it: points, columns, summary, tables and figures."""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..analysis.groups import Row
from ..charts.tables import ResultsTable
from ..runs.text import count
from ..user_model.functions import files_of
from .columns import POINT, RUN, Columns
from .placement import Placement

if TYPE_CHECKING:
    from ..charts.figure import Figures
    from ..runs.run_record import RunRecord


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

    A new kind is a subclass in a file of its own and a line in `kinds.py`. It varies settings of
    `TrainConfig`: what is none has to become one first. What is computed from
    rows are class methods, as a report has rows and settings but no experiment to run.

    Attributes:
        kind: Its name, on the command line and in `sweep.json`.
        axes: The columns that tell its points apart besides batch and replicas.
        setting: The columns that name a setting; points that agree in them are repetitions.
        required: The columns that a point has to have when it is done.
        trains: Whether its runs are whole trainings; others only time a few epochs.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        workers: Numbers of workers that train a point together.
    """

    kind: ClassVar[str]
    axes: ClassVar[Columns]
    setting: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]]
    trains: ClassVar[bool] = False

    train: Mapping[str, Any]
    workers: Sequence[int] = (1,)

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
            settings: Of the sweep, as `sweep.json` has them.
        """

    @classmethod
    @abc.abstractmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        """The summary as tables for printing; tables without rows are omitted."""

    @classmethod
    @abc.abstractmethod
    def figures(
        cls,
        name: str,
        rows: Sequence[Row],
        summary: Mapping[str, Any],
        *,
        runs: Mapping[str, "RunRecord"],
        prefix: str = "",
    ) -> "Figures":
        """The charts, and the data that they name.

        Args:
            name: Of the sweep, for titles; empty where the page names it.
            rows: Of the points that are done.
            summary: What `summarize` returned for them.
            runs: Run folders by the name of their point, where the experiment trains.
            prefix: Prefix of the figures' ids and of the names of their data.
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


def as_list(value: Any) -> str:
    """Format a setting as the command line takes it, such as `8,16`."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def alternating_order(points: Sequence[Point], turn: int) -> list[Point]:
    """The points of a round, every other round backwards, so that drift affects all equally."""
    return list(points)[:: -1 if turn % 2 else 1]


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
