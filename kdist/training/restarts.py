"""Runs that `kdist launch --max-restarts` starts again: which run it was that a worker trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.cluster import NOTES, RESTART_COUNT
from ..runs.run_folder import RunFolder
from ..runs.run_record import read_run

_NAME = "run"


def note_run(folder: RunFolder, environment: Mapping[str, str]) -> None:
    """Note which run is trained, for workers that may be started again.

    Args:
        folder: The run's.
        environment: Such as `os.environ`.
    """
    notes = environment.get(NOTES)
    if notes and folder.is_written:
        Path(notes, _NAME).write_text(str(folder.path), encoding="utf-8")


def after_restart(
    environment: Mapping[str, str], settings: Mapping[str, Any], resume: str | None
) -> tuple[dict[str, Any], str | None]:
    """Return settings and the run to resume, which is the one that the same workers have begun.

    Args:
        environment: Such as `os.environ`.
        settings: By name, as the user has passed them.
        resume: The run that the user has passed; `None` for a new one.
    """
    notes = environment.get(NOTES)
    if not notes or environment.get(RESTART_COUNT, "0") == "0":
        return dict(settings), resume
    try:
        run = Path(notes, _NAME).read_text(encoding="utf-8")
    except FileNotFoundError:  # they were ended before they had a run
        return dict(settings), resume
    if not Path(run, "config.json").exists():  # ended before it was trained
        return {**settings, "run_dir": run}, resume
    if not _has_checkpoints(run):
        return dict(settings), resume
    return {**settings, "run_dir": run}, run


def _has_checkpoints(run: str) -> bool:
    try:
        settings = read_run(Path(run), unfinished=True).settings
    except (UserError, OSError):
        return False
    return settings.get("checkpoint_every") is not None
