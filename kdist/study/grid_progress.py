"""The table that a grid shows while it runs."""

import statistics
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.table import Table

from ..analysis.groups import Row
from ..runs.text import time_left
from .experiments import Point

# Points take minutes: their pace is that of all of them, not of rich's last half minute.
_PACE_SECONDS = 30 * 24 * 3600.0


class Progress:
    """A row for each group of points, and a bar with the time left.

    Where the output is no terminal, a line for each point instead.

    Args:
        points: All points of the sweep.
        rows: Those that ended, by name.
        console: Where it is printed.
    """

    def __init__(self, points: Sequence[Point], rows: Mapping[str, Row], console: Console) -> None:
        self._points = points
        self._rows = rows
        self._console = console
        self._current: Point | None = None
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=_PACE_SECONDS,
        )
        self._task = self._bar.add_task("", total=len(points), completed=len(rows))
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> "Progress":
        self._bar.advance(self._task, 0)  # from here on the pace is taken
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._current = None
        if self._console.is_terminal:
            self._live.stop()

    def begin(self, point: Point) -> None:
        """Show which point is running."""
        self._current = point
        self._bar.update(self._task, description=point.name)

    def end(self, row: Row) -> None:
        """Show how a point ended."""
        self._bar.advance(self._task)
        if not self._console.is_terminal or row["status"] == "failed":
            left = self._bar.tasks[0].time_remaining
            rest = f", {time_left(left)}" if left else ""
            self._console.print(
                f"{len(self._rows)} of {len(self._points)}: {row['name']}: {outcome(row)}{rest}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _render(self) -> Group:
        table = Table("", "done", "images/s", "accuracy", "seconds")
        groups: dict[str, list[Point]] = {}
        for point in self._points:
            groups.setdefault(point.group, []).append(point)
        for name, points in groups.items():
            rows = [self._rows[point.name] for point in points if point.name in self._rows]
            runs = self._current is not None and self._current.group == name
            done = [row for row in rows if row["status"] == "done"]
            failed = f", {len(rows) - len(done)} failed" if len(done) < len(rows) else ""
            table.add_row(
                f"> {name}" if runs else f"  {name}",
                f"{len(rows)} of {len(points)}{failed}",
                _median(done, "images_per_sec", ",.0f"),
                _median(done, "best_val_accuracy", ".3f"),
                _median(done, "seconds", ",.1f"),
            )
        return Group(table, self._bar)


def outcome(row: Row) -> str:
    """The result of a point in a few words."""
    if row["status"] == "failed":
        return f"failed: {row['error']}"
    words = []
    if row["images_per_sec"] is not None:
        words.append(f"{row['images_per_sec']:,.0f} images/s")
    if row["diverged"]:
        words.append("target not met: the loss was not finite")
    elif row["reached_target"] is not None:
        words.append(
            f"target met in epoch {row['epochs_to_target']}, {row['seconds_to_target']:.1f} seconds"
            if row["reached_target"]
            else f"target not met, best {row['best_val_accuracy']:.3f}"
        )
    return ", ".join(words) or "done"


def _median(rows: Sequence[Row], name: str, form: str) -> str:
    values = [row[name] for row in rows if row[name] is not None]
    return format(statistics.median(values), form) if values else ""
