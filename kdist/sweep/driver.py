"""Runs the points of a sweep that have not run yet, and shows the progress."""

import dataclasses
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ..analysis.groups import Row
from ..errors import error_text
from ..launch.child import OUT_OF_MEMORY
from ..signals import signal_of
from .experiment import Experiment, Point
from .progress import Progress
from .results import read_point
from .resumable import can_be_resumed
from .sweep_folder import SweepFolder

RunPoint = Callable[[Point, Path, type[Experiment]], Row]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """How a sweep ended.

    Args:
        rows: Of all points that ended, those of earlier calls too, in the order of the points.
        left: How many points remain.
        interrupted: The signal that ended it; `None` if none did.
        stopped: Why it stopped early; empty where it did not.
    """

    rows: list[Row]
    left: int
    interrupted: signal.Signals | None = None
    stopped: str = ""


def run_sweep(
    experiment: Experiment,
    folder: SweepFolder,
    *,
    run_point: RunPoint,
    console: Console,
    retry_failed: bool = False,
) -> SweepOutcome:
    """Run the remaining points of a sweep, one after the other.

    A point that fails gets a row with its error, and the next one is run. A full disk ends the
    sweep, as every further point would fail; so do Ctrl-C, SIGTERM and SIGHUP. None leaves a row
    for the point that it hits, which is run when the sweep is started again.

    Args:
        experiment: What is to be run.
        folder: The sweep's.
        run_point: Runs one point in its folder, as `kdist.sweep.run_point.run_point`; it is empty,
            unless `can_be_resumed`.
        console: Takes the table and the lines about the progress.
        retry_failed: Run points again that failed in an earlier call.

    Returns:
        The rows; tables and charts of a sweep that stopped halfway are those of its rows.
    """
    points = experiment.points()
    rows, skipped = ended_rows(experiment, folder.path)
    for line in skipped:
        console.print(line, markup=False, highlight=False)
    if retry_failed:
        rows = {name: row for name, row in rows.items() if row["status"] != "failed"}
    interrupted, stopped = None, ""
    with Progress(points, rows, console) as progress:
        try:
            for point in points:
                if point.name in rows:
                    continue
                progress.begin(point)
                row = _without_memory(point, points, rows)
                path = folder.point(point.name)
                if not can_be_resumed(path, point.config):
                    path = folder.clear_point(point.name)
                row = row or run_point(point, path, type(experiment))
                folder.write_point(row)
                rows[point.name] = row
                folder.write_rows(_in_order(points, rows), experiment.columns())
                progress.end(row)
        except KeyboardInterrupt as error:
            interrupted = signal_of(error)
        except OSError as error:
            stopped = why_stopped(error, folder)
    return SweepOutcome(
        rows=_in_order(points, rows),
        left=len(points) - len(rows),
        interrupted=interrupted,
        stopped=stopped,
    )


def why_stopped(error: OSError, folder: SweepFolder) -> str:
    """Why files cannot be written, for the message."""
    why = error_text(error)
    try:
        free = shutil.disk_usage(folder.path).free / 2**20
    except OSError as gone:  # somebody removed the folder, or its disk
        return f"{why} ({folder.path}: {error_text(gone)})"
    return f"{why} ({free:,.0f} MiB free in {folder.path})"


def ended_rows(experiment: Experiment, folder: Path) -> tuple[dict[str, Row], list[str]]:
    """Read the rows of points that ended in earlier calls.

    Args:
        experiment: What is to be run.
        folder: The sweep's.

    Returns:
        The rows by the names of the points, and a line for each folder that has none.
    """
    rows: dict[str, Row] = {}
    skipped = []
    points = {point.name: point for point in experiment.points()}
    for path in sorted(folder.glob("points/*")):
        row = read_point(path, experiment.kind)
        if not isinstance(row, str):
            row = _checked(row, points.get(path.name))
        if isinstance(row, str):
            again = "; it is run again" if path.name in points else ""
            skipped.append(f"Skipped: {path.name}: {row}{again}")
        else:
            rows[path.name] = row
    return rows, skipped


def _checked(row: Row, point: Point | None) -> Row | str:
    """The row, or why it is not one of `point`."""
    if point is None:
        return "not a point of this sweep"
    for name, value in point.axes.items():
        if row[name] != value:
            return f"point.json has {name} {row[name]!r}, not {value!r}"
    return row


def _without_memory(point: Point, points: Sequence[Point], rows: dict[str, Row]) -> Row | None:
    """A row for a repetition of what ran out of memory: it would again, and may take long to."""
    for other in points:
        row = rows.get(other.name)
        if row is None or other.group != point.group or row["status"] != "failed":
            continue
        if str(row["error"]).startswith(OUT_OF_MEMORY):
            error = f"{OUT_OF_MEMORY}, as {other.name}; not run again"
            return row | {"name": point.name, **point.axes, "error": error}
    return None


def _in_order(points: Sequence[Point], rows: dict[str, Row]) -> list[Row]:
    return [rows[point.name] for point in points if point.name in rows]
