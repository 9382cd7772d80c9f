"""The folder of a grid, and what is read from it."""

import contextlib
import csv
import dataclasses
import fcntl
import io
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.groups import Row, done
from ..arguments import path_text
from ..errors import UserError
from ..files import (
    atomic_write,
    check_writable_folder,
    explain_write_errors,
    parse_json,
    read_text,
    writable_folder,
)
from ..runs.run_folder import RUNS, unused_path
from ..runs.run_record import RunRecord, read_run
from ..runs.text import sanitize_text
from .experiments import Experiment, as_list, invalid_value
from .kinds import EXPERIMENTS

SWEEP_FILE = "sweep.json"
SWEEP_FORMAT = 2

_STATUSES = ("done", "failed")
# What earlier versions did not write, as there were no others.
_ONE_WORKER = {"workers": [1]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep read from its folder, finished or not.

    Args:
        path: The folder.
        kind: A key of `EXPERIMENTS`.
        settings: Those of the sweep.
        machine: Where it ran.
        points: The rows of the points that ended, with the columns of the kind, by name.
        skipped: Folders of points that are skipped, each with the reason.
    """

    path: Path
    kind: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    points: list[Row]
    skipped: dict[str, str]


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read the folder of a sweep.

    Points whose row is missing (running, or killed), unreadable or invalid are in `skipped`.

    Args:
        path: The folder, the one with `sweep.json` in it.

    Raises:
        UserError: It is not a sweep folder, or one of another version of kdist.
    """
    folder = Path(path)
    about = read_about(folder)
    points: list[Row] = []
    skipped: dict[str, str] = {}
    for point in sorted(folder.glob("points/*")):
        row = read_point(point, about["kind"])
        if isinstance(row, str):
            skipped[point.name] = row
        else:
            points.append(row)
    return Sweep(path=folder, points=points, skipped=skipped, **about)


def read_point(folder: Path, kind: str) -> Row | str:
    """The row of a point's folder with the columns of its kind, or why there is none."""
    file = folder / "point.json"
    if not folder.is_dir():
        return "not a folder"
    if not file.exists():
        return "no point.json: it has not ended"
    try:
        row = parse_json(read_text(file))
    except (OSError, ValueError) as error:
        return f"point.json cannot be read: {error}"
    if not isinstance(row, dict) or not {"name", "kind", "status"} <= row.keys():
        return "point.json is not a row of a sweep"
    if row["name"] != folder.name or row["status"] not in _STATUSES:
        return f"point.json is of {row['name']!r}, status {row['status']!r}"
    if row["kind"] != kind:
        return f"point.json has kind {row['kind']!r}, not {kind!r}"
    row = {"workers": 1} | row  # see `_ONE_WORKER`
    row = {name: row.get(name) for name in EXPERIMENTS[kind].columns()}
    return why_invalid(row, kind, file="point.json") or row


def why_invalid(row: Row, kind: str, *, file: str) -> str:
    """Why a row of a file cannot be used: a value of the wrong type, or one that is missing."""
    experiment = EXPERIMENTS[kind]
    wrong = invalid_value(row, experiment.columns())
    if wrong:
        return f"{file} has {wrong}"
    missing = [n for n in (*experiment.setting, *experiment.required) if row[n] is None]
    return f"{file} has no {missing[0]}" if row["status"] == "done" and missing else ""


def read_about(folder: Path) -> dict[str, Any]:
    """Read `sweep.json` of a sweep's folder: its `kind`, `settings` and `machine`.

    Raises:
        UserError: As in `read_sweep`.
    """
    file = folder / SWEEP_FILE
    try:
        about = parse_json(read_text(file))
    except OSError as error:
        raise UserError(
            f"{folder} is not a sweep folder: its sweep.json cannot be read ({error.strerror});"
            " pass the folder that kdist sweep named"
        ) from error
    except ValueError as error:
        raise UserError(
            f"{file} is not valid JSON ({error}): pass the folder that kdist sweep named"
        ) from error
    if not isinstance(about, dict) or "format" not in about:
        raise UserError(
            f"{file} was not written by kdist sweep: pass the folder that kdist sweep named"
        )
    if about["format"] != SWEEP_FORMAT:
        raise UserError(
            f"{folder} has format {about['format']}, this kdist reads {SWEEP_FORMAT}: read it with"
            " the kdist that wrote it, or run the sweep again with another --output"
        )
    parts = {name: about.get(name) for name in ("kind", "settings", "machine")}
    if (
        not isinstance(parts["kind"], str)
        or parts["kind"] not in EXPERIMENTS
        or not all(isinstance(parts[name], dict) for name in ("settings", "machine"))
    ):
        raise UserError(
            f"{file} lacks a sweep's kind, settings or machine: pass the folder that kdist sweep"
            " named"
        )
    return {**parts, "settings": {**_ONE_WORKER, **(parts["settings"] or {})}}


# Of `machine`, what makes speeds comparable.
_SAME_MACHINE = ("cpu", "cores", "devices")


class SweepFolder:
    """A folder with `sweep.json`, a folder for each point, and their summary.

    Use `open_folder`, which makes one or finds one.

    Args:
        path: The folder, which exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def point(self, name: str) -> Path:
        """The folder of a point."""
        return self.path / "points" / name

    def write_point(self, row: Mapping[str, Any]) -> None:
        """Write the row of a point that ended."""
        atomic_write(self.point(row["name"]) / "point.json", as_json(row))

    def write_rows(self, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> None:
        """Write the columns of all rows into one table, as CSV, and the rows as JSON."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(columns), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        atomic_write(self.path / "points.csv", text.getvalue())
        atomic_write(self.path / "points.json", as_json(rows))

    def write_summary(self, measured: Mapping[str, Any]) -> None:
        """Write the summary of the rows."""
        atomic_write(self.path / "summary.json", as_json(measured))

    def clear_point(self, name: str) -> Path:
        """An empty folder for a point; the files of an interrupted run are removed."""
        folder = self.point(name)
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def discard_points(self) -> None:
        """Remove the points of a sweep of which none has ended.

        Raises:
            UserError: The sweep is running.
        """
        with self.alone():
            shutil.rmtree(self.path / "points", ignore_errors=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from working on the same sweep.

        Raises:
            UserError: One does already.
        """
        with explain_write_errors(self.path, hint="pass another --output"):
            lock = open(self.path / ".lock", "a", encoding="utf-8")  # noqa: SIM115 - closed below
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UserError(
                    f"another process is running the sweep in {self.path}: wait until it ends,"
                    " or pass another --output"
                ) from error
            yield


def open_folder(
    *,
    kind: str,
    settings: Mapping[str, Any],
    machine: Mapping[str, Any],
    points: int,
    output: str | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
) -> tuple[SweepFolder, bool]:
    """The folder for a sweep: the one given, an unfinished one of the same settings, or a new one.

    Args:
        kind: Of the sweep.
        settings: Those of the sweep.
        machine: Where it runs.
        points: How many points it has in all.
        output: The folder; `None` looks below `runs/`.
        fresh: Make a new one, even if an unfinished one could be resumed.
        retry_failed: Take one whose points all ended, but some failed, for unfinished.

    Returns:
        The folder, and whether it was there already.

    Raises:
        UserError: The given folder contains another sweep or other files, or cannot be written.
    """
    asked = json.loads(json.dumps({"kind": kind, "settings": settings, "machine": machine}))
    if output is not None:
        path = Path(output)
        if holds_sweep(output, fresh=fresh):
            sweep = read_sweep(path)
            ended = any(path.glob("points/*/point.json"))  # even if it cannot be read
            if ended or not _differences(sweep, asked):
                check_same(sweep, asked)
                return SweepFolder(path), True
            # Stopped before a point had ended, to be corrected: there is nothing to lose.
            SweepFolder(path).discard_points()
    else:
        found = None if fresh else _unfinished(asked, points, retry_failed)
        if found is not None:
            return SweepFolder(found), True
        path = unused_path("sweep-")
    writable_folder(path, option="--output")
    with explain_write_errors(path, hint="pass another --output"):
        atomic_write(path / SWEEP_FILE, as_json({"format": SWEEP_FORMAT, **asked}))
    return SweepFolder(path), False


def holds_sweep(output: str, *, fresh: bool) -> bool:
    """Whether the given folder contains a sweep; an empty or missing one has to be writable.

    Args:
        output: The folder.
        fresh: Refuse a folder that is not empty.

    Raises:
        UserError: It contains something else, or cannot be written.
    """
    path = Path(path_text("--output", output))
    with explain_write_errors(path, hint="pass another --output"):
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            check_writable_folder(path, option="--output")
            return False
    if fresh:
        raise UserError(f"{path} is not empty: with --fresh, pass a new or empty --output")
    read_about(path)  # raises, where it holds something else
    return True


def as_json(value: Any) -> str:
    """JSON that every program reads: what is not a finite number becomes null."""
    return json.dumps(_finite(value), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_same(sweep: Sweep, asked: Mapping[str, Any]) -> None:
    """Check that a sweep has the requested settings.

    Args:
        sweep: Read from a folder.
        asked: The requested `kind`, `settings` and `machine`.

    Raises:
        UserError: Its settings or machine differ.
    """
    differs = _differences(sweep, asked)
    if differs:
        raise UserError(
            f"{sweep.path} contains another sweep: {'; '.join(differs)}; pass the same settings"
            " or another --output"
        )


def _differences(sweep: Sweep, asked: Mapping[str, Any]) -> list[str]:
    if sweep.kind != asked["kind"]:
        return [f"its kind is {sweep.kind}, not {asked['kind']}"]
    here = {name: sweep.machine.get(name) for name in _SAME_MACHINE}
    now = {name: asked["machine"].get(name) for name in _SAME_MACHINE}
    pairs = [(sweep.settings, asked["settings"]), (here, now)]
    train = (sweep.settings.get("train", {}), asked["settings"].get("train", {}))
    differs = [
        f"its {name} is {as_list(there.get(name))}, not {as_list(given.get(name))}"
        for there, given in [*pairs, train]
        for name in sorted({*there, *given})
        if name not in ("train", "files") and there.get(name) != given.get(name)
    ]
    then, files = (one.get("files") or {} for one in pairs[0])
    changed = [file for file in files if file in then and then[file] != files[file]]
    return differs + [f"{file} has changed since" for file in changed]


def _unfinished(asked: Mapping[str, Any], points: int, retry_failed: bool) -> Path | None:
    """The newest sweep below `runs/` that is the same and has points to run, or no summary."""
    for sweep in _same_sweeps(asked):
        failed = any(row["status"] == "failed" for row in sweep.points)
        left = len(sweep.points) < points or read_summary(sweep.path) is None
        if left or (failed and retry_failed):
            return sweep.path
    return None


def earlier_results(folder: SweepFolder) -> Path | None:
    """Find the newest finished sweep below `runs/` with the settings of the one in `folder`."""
    about = read_about(folder.path)
    finished = (one.path for one in _same_sweeps(about) if read_summary(one.path) is not None)
    return next((path for path in finished if path != folder.path), None)


def _same_sweeps(asked: Mapping[str, Any]) -> Iterator[Sweep]:
    """The sweeps below `runs/` with the same settings and machine, newest first."""
    for file in sorted(RUNS.glob(f"sweep-*/{SWEEP_FILE}"), key=_age):
        with contextlib.suppress(UserError):  # of another version, or damaged
            sweep = read_sweep(file.parent)
            if not _differences(sweep, asked):
                yield sweep


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Read the summary of all points of a sweep; `None` if there is none, or points are left."""
    try:
        found = parse_json(read_text(folder / "summary.json"))
        return dict(found) if found["points_left"] == 0 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _age(file: Path) -> float:
    return -file.stat().st_mtime


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A sweep folder, read back.

    Attributes:
        name: What the report calls it.
        path: Its folder.
        kind: A key of `EXPERIMENTS`.
        settings: Those of the sweep.
        machine: Where it ran.
        rows: A row for each point that ended.
        runs: The run folders of points whose training is whole, by the points' names.
        skipped: Points that cannot be shown, with the reason.
    """

    name: str
    path: Path
    kind: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    rows: Sequence[Row]
    runs: Mapping[str, RunRecord]
    skipped: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, sweep: Sweep) -> "SweepRecord":
        """Take what `read_sweep` gave, with text that UTF-8 can hold, and read the run folders."""
        rows: list[Row] = [sanitize_text(row) for row in sweep.points]
        runs, skipped = read_runs(sweep.path, sweep.kind, rows)
        return cls(
            name=sanitize_text(sweep.path.resolve().name),
            path=sweep.path,
            kind=sweep.kind,
            settings=sanitize_text(sweep.settings),
            machine=sanitize_text(sweep.machine),
            rows=rows,
            runs=runs,
            skipped=[*sweep.skipped.items(), *skipped],
        )

    @property
    def experiment(self) -> type[Experiment]:
        """Its kind of sweep."""
        return EXPERIMENTS[self.kind]

    @property
    def train_settings(self) -> Mapping[str, Any]:
        """The settings that every run of the sweep was given."""
        train = self.settings.get("train")
        return train if isinstance(train, Mapping) else {}

    @property
    def done(self) -> list[Row]:
        """The points that are done."""
        return done(self.rows)

    @property
    def failed(self) -> list[Row]:
        """The points that failed."""
        return [row for row in self.rows if row["status"] != "done"]


def read_runs(
    folder: Path, kind: str, rows: Sequence[Row]
) -> tuple[dict[str, RunRecord], list[tuple[str, str]]]:
    """Read the run folders of the points that are done, where the sweep trains.

    Args:
        folder: The sweep's.
        kind: Of the sweep.
        rows: Of its points.

    Returns:
        The runs by the names of their points, and run folders that cannot be shown with the reason.
    """
    runs: dict[str, RunRecord] = {}
    skipped: list[tuple[str, str]] = []
    for row in rows if EXPERIMENTS[kind].trains else ():
        if row["run_dir"] is None or row["status"] != "done":
            continue
        run, place = folder / row["run_dir"], f"{row['name']}: {row['run_dir']}"
        if not run.resolve().is_relative_to(folder.resolve()):
            skipped.append((place, "outside the sweep's folder"))
            continue
        try:
            runs[row["name"]] = read_run(run, name=row["name"])
        except (UserError, OSError) as error:
            skipped.append((place, str(error)))
    return runs, skipped
