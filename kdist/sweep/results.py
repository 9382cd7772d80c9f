"""Reads the folder of a sweep: its settings, and a row for each point."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from ..analysis.groups import Row
from ..errors import UserError
from ..files import parse_json, read_text
from .columns import invalid_value
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
