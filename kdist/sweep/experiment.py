"""What every kind of sweep is made of: points to run, and what their rows come to."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep.

    Args:
        name: Its folder's.
        config: Settings of the run, as `TrainConfig` takes them.
        axes: What it stands for, columns of its row.
        leave_out: As in `kdist.training.train`.
    """

    name: str
    config: Mapping[str, Any]
    axes: Mapping[str, Any]
    leave_out: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """What the point is a repetition of."""
        axes = self.axes
        parts = [axes["mode"], f"batch {axes['batch_size']}"] if "mode" in axes else []
        parts = parts or [f"batch {axes['batch_size']}"]
        parts.append(f"replicas {axes['replicas']}")
        parts += [str(axes[key]) for key in ("lr_rule", "variant") if key in axes]
        return ", ".join(parts)


class Experiment(Protocol):
    """A kind of sweep with its settings."""

    @property
    def kind(self) -> str:
        """`"throughput"`, `"accuracy"` or `"scaling"`."""

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for, as plain data: equal settings are the same sweep."""

    def points(self) -> list[Point]:
        """What is to be run, in order."""

    def measure(self, rows: Sequence[Row]) -> dict[str, Any]:
        """What the rows of the points that are done come to, as plain data."""

    def tables(self, measured: Mapping[str, Any]) -> list[Table | str]:
        """The same for a reader."""

    def draw(self, rows: Sequence[Row], measured: Mapping[str, Any], folder: Path) -> list[Path]:
        """Draw charts into the folder, and return their paths."""


def alike(train: Mapping[str, Any], replicas: Sequence[int]) -> dict[str, Any]:
    """Settings of runs that differ in nothing but the replicas.

    Unless told, a run compiles its step with XLA on one GPU and on several does not.
    """
    told = {name: value for name, value in train.items() if (name, value) != ("xla", None)}
    return {"xla": False, **told} if len(set(replicas)) > 1 else told


def there_and_back(groups: Sequence[Point], turn: int) -> list[Point]:
    """The points of a round, every other round backwards, so that drift hits all alike."""
    return list(groups)[:: -1 if turn % 2 else 1]
