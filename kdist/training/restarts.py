"""Runs that `kdist launch --max-restarts` starts again: which run it was that a worker trained."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.cluster import NOTES, RESTART_COUNT
from ..runs.run_folder import RunFolder, clear_run
from ..runs.run_record import read_run
from .workers import worker_place

_NAME = "run"


def note_run(folder: RunFolder, environment: Mapping[str, str]) -> None:
    """Note which run is begun, for workers that may be started again.

    Args:
        folder: The run's, which was empty unless the run is resumed.
        environment: Such as `os.environ`.
    """
    notes = environment.get(NOTES)
    if notes and folder.is_written and not folder.is_resumed:
        Path(notes, _NAME).write_text(str(folder.path), encoding="utf-8")


def after_restart(
    environment: Mapping[str, str],
    settings: Mapping[str, Any],
    resume: str | None,
    *,
    announce: Callable[[str], None] = print,
) -> tuple[dict[str, Any], str | None]:
    """Return settings and the run to resume, which is the one that the same workers have begun.

    A run that was to save no checkpoints begins again in its folder, which the chief clears.

    Args:
        environment: Such as `os.environ`.
        settings: By name, as the user has passed them.
        resume: The run that the user has passed; `None` for a new one.
        announce: Called with a line if the run begins again.

    Raises:
        UserError: A file of the run cannot be removed.
    """
    notes = environment.get(NOTES)
    if not notes or environment.get(RESTART_COUNT, "0") == "0":
        return dict(settings), resume
    try:
        run = Path(notes, _NAME).read_text(encoding="utf-8")
    except FileNotFoundError:  # they were ended before they had a run
        return dict(settings), resume
    own = {**settings, "run_dir": run}
    if Path(settings.get("run_dir") or run) != Path(run):  # another that the program trains
        return dict(settings), resume
    if _can_be_resumed(Path(run)):
        return own, run
    if worker_place(environment).is_chief and clear_run(Path(run)):
        announce(f"{run} has no checkpoints (--checkpoint-every): begins again at the first step")
    return own, resume


def _can_be_resumed(path: Path) -> bool:
    """Whether a run has checkpoints, or is finished with its model, which resuming it says."""
    try:
        run = read_run(path, unfinished=True)
    except (UserError, OSError):  # ended before it was trained, or the chief has cleared it
        return False
    if run.settings.get("checkpoint_every") is not None:
        return True
    has_model = any((path / name).exists() for name in ("model.keras", "model.weights.h5"))
    return run.status.is_complete and (has_model or not run.settings.get("save_model"))
