"""A sweep's folder, read: its settings, and a row for each point."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from ..errors import UserError

SWEEP_FORMAT = 1

KINDS = ("throughput", "accuracy", "scaling")

COLUMNS = (
    "name",
    "kind",
    "status",
    "error",
    "batch_size",
    "replicas",
    "global_batch",
    "lr_rule",
    "learning_rate",
    "seed",
    "round",
    "mode",
    "variant",
    "images_per_step",
    "images_per_sec",
    "images_per_sec_low",
    "images_per_sec_high",
    "seconds",
    "epochs",
    "reached_target",
    "seconds_to_target",
    "epochs_to_target",
    "val_accuracy",
    "best_val_accuracy",
    "noise_scale",
    "run_dir",
)
"""What a row tells of a point; `None` where it does not apply."""

_STATUSES = ("done", "failed")
_WORDS = ("name", "kind", "status", "error", "lr_rule", "mode", "variant", "run_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep as it lies in its folder, finished or not.

    Args:
        path: The folder.
        kind: `"throughput"`, `"accuracy"` or `"scaling"`.
        settings: What was asked for.
        machine: Where it ran.
        points: The rows of the points that ended, with the keys of `COLUMNS`, by name.
        left_out: Folders of points that are not among them, each with the reason.
    """

    path: Path
    kind: str
    settings: dict[str, Any]
    machine: dict[str, Any]
    points: list[dict[str, Any]]
    left_out: dict[str, str]


def read_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read the folder of a sweep.

    Points whose row is missing (running, or killed), unreadable or foreign are told in `left_out`.

    Args:
        path: The folder, the one with `sweep.json` in it.

    Raises:
        UserError: It is no folder of a sweep, or one of another version of kdist.
    """
    folder = Path(path)
    about = _about(folder)
    points: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for point in sorted(folder.glob("points/*")):
        row = read_point(point)
        if isinstance(row, str):
            left_out[point.name] = row
        else:
            points.append(row)
    return Sweep(path=folder, points=points, left_out=left_out, **about)


def read_point(folder: Path) -> dict[str, Any] | str:
    """The row of a point's folder, or why there is none."""
    file = folder / "point.json"
    if not folder.is_dir():
        return "not a folder"
    if not file.exists():
        return "no point.json: it has not ended"
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return f"point.json cannot be read: {error}"
    if not isinstance(row, dict) or not {"name", "kind", "status"} <= row.keys():
        return "point.json is not a row of a sweep"
    row = dict.fromkeys(COLUMNS) | row
    if row["name"] != folder.name or row["status"] not in _STATUSES:
        return f"point.json is of {row['name']!r}, status {row['status']!r}"
    for name in COLUMNS:
        kinds = str if name in _WORDS else int | float
        if row[name] is not None and not isinstance(row[name], kinds):
            return f"point.json has {name} {row[name]!r}"
    return row


def _about(folder: Path) -> dict[str, Any]:
    file = folder / "sweep.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{folder} is no folder of a sweep: its sweep.json cannot be read ({error.strerror});"
            " pass the folder that kdist sweep named"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is no JSON ({error}): pass the folder that kdist sweep named"
        ) from error
    if not isinstance(about, dict) or "format" not in about:
        raise UserError(f"{file} is not of kdist sweep: pass the folder that kdist sweep named")
    if about["format"] != SWEEP_FORMAT:
        raise UserError(
            f"{folder} has format {about['format']}, this kdist reads {SWEEP_FORMAT}: read it with"
            " the kdist that wrote it, or sweep anew into another --output"
        )
    parts = {name: about.get(name) for name in ("kind", "settings", "machine")}
    if parts["kind"] not in KINDS or not all(
        isinstance(parts[name], dict) for name in ("settings", "machine")
    ):
        raise UserError(
            f"{file} lacks a sweep's kind, settings or machine: pass the folder that kdist sweep"
            " named"
        )
    return parts
