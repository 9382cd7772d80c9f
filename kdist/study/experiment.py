"""`Experiment`: a kind of sweep: its points, the columns of their rows, tables and figures."""

import abc
import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen

from ..charts.statistics import Row
from ..charts.tables import ResultsTable
from ..errors import UserError
from ..fields import fields_of
from ..strategies.hardware import on_cpu
from ..training.console import count
from ..training.user_model.functions import files_of
from .folder import StudyFolder, as_list
from .trial import Trial

if TYPE_CHECKING:
    from ..charts.figures import Figure


# At most a hundred values of a setting, each of which is a run of several seconds.
Counts = Annotated[Sequence[Annotated[int, Ge(1), Le(10**9)]], MaxLen(100)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment(abc.ABC):
    """A kind of sweep; the fields are its settings, and equal settings are the same sweep.

    A new kind is a subclass in `sweep_kinds.py`, with a command in `kdist/cli/sweep.py`. It varies
    settings of `TrainConfig`. Summaries are class methods, as a report has rows and settings but no
    experiment to run.

    Attributes:
        kind: The name on the command line and in `study.json`.
        setting: The columns that name a setting; points that agree in them are repetitions.
        required: The columns of every point that is done.
        trains: Whether runs are whole trainings, or only time a few epochs.

    Args:
        train: Settings of every run, as `TrainConfig` takes them.
        replicas: Numbers of replicas.
    """

    kind: ClassVar[str]
    setting: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]]
    trains: ClassVar[bool] = False

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
        own = vars(type(self))["__annotations__"]  # first, then the settings of every kind
        names = sorted({*self.settings} - {"train", "files"}, key=[*own, *self.settings].index)
        words = [f"{name} {as_list(self.settings[name])}" for name in names]
        return f"Sweep {self.kind}: {count(len(self.points()), 'run')} ({'; '.join(words)})"

    @property
    def timed_batch(self) -> int:
        """The largest global batch whose speed is measured, which the data have to fill."""
        return 0

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

    @classmethod
    def group(cls, axes: Mapping[str, Any]) -> str:
        """Describe the setting of a point or row, such as `batch 8, replicas 2`."""
        words = {"batch_size": "batch ", "replicas": "replicas "}
        return ", ".join(f"{words.get(name, '')}{axes[name]}" for name in cls.setting)

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
            group=self.group(axes),
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
    def summarize(cls, rows: Sequence[Row], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Sum up the points that are done, as plain data.

        Args:
            rows: The rows of these points, with the required columns.
            settings: The settings of the sweep, as in `study.json`.
        """

    @classmethod
    @abc.abstractmethod
    def tables(cls, summary: Mapping[str, Any]) -> list[ResultsTable]:
        """Return the summary as tables; tables without rows are omitted."""

    @classmethod
    @abc.abstractmethod
    def figures(cls, summary: Mapping[str, Any]) -> list["Figure"]:
        """Return the charts of the summary."""


def shared_cores_warning(about: dict[str, Any], rows: Sequence[Row]) -> str | None:
    """Return a warning if several replicas are parts of a CPU, else `None`.

    Args:
        about: The result of `kdist.strategies.hardware.machine`.
        rows: The rows of the points.
    """
    most = max((row["replicas"] for row in rows), default=1)
    if most == 1 or not on_cpu(about):
        return None
    return (
        "Replicas are logical CPUs that share this machine's cores: these figures do not measure a"
        " speed-up, only the overhead of a step on several replicas."
    )


Positive = Annotated[float, Gt(0)]


@dataclasses.dataclass(kw_only=True)
class PointRow:
    """The columns of a point's row, in the order of `points.csv`; a kind has some of them."""

    name: str
    kind: str
    status: Literal["done", "failed"]
    error: str
    batch_size: Positive
    replicas: Positive
    global_batch: Positive
    # By the kind of sweep.
    round: Positive
    mode: str
    lr_rule: str
    seed: float
    # Read from the folder of the run.
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


COLUMNS = {field.name: field for field in fields_of(PointRow)}


def read_rows(folder: StudyFolder, experiment: type[Experiment]) -> list[Row]:
    """Read the rows of the points of a sweep that ended; invalid rows are left out.

    Raises:
        UserError: Their file is damaged.
    """
    rows = [{name: row.get(name) for name in COLUMNS} for row in folder.read_rows()]
    return [row for row in rows if not explain_invalid(row, experiment)]


def explain_invalid(row: Row, experiment: type[Experiment]) -> str:
    """Return why a row cannot be used: a value that is missing or of the wrong type; or nothing."""
    for name, column in COLUMNS.items():
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
