"""The run that the workers of `kdist launch` train again after a restart."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..remote import local_records
from ..workers.tf_config import NOTES, RESTART_COUNT, worker_place
from .run_folder import RunFolder, clear_run
from .run_record import read_run

_NOTE_FILE = "run"


def record_run_for_restart(folder: RunFolder, environment: Mapping[str, str]) -> None:
    """Record the run that begins, for workers that may be restarted.

    Args:
        folder: The run folder, which was empty unless the run is resumed.
        environment: Environment variables, such as `os.environ`.
    """
    notes = environment.get(NOTES)
    if notes and folder.is_written and not folder.is_resumed:
        Path(notes, _NOTE_FILE).write_text(folder.show(folder.path), encoding="utf-8")


def restore_after_restart(
    environment: Mapping[str, str],
    settings: Mapping[str, Any],
    resume: str | None,
    *,
    announce: Callable[[str], None] = print,
) -> tuple[dict[str, Any], str | None]:
    """Return the settings, and the run that the workers trained before they were restarted.

    A run without `checkpoint_every` begins again in its folder, after the chief has removed the
    files of the earlier attempt.

    Args:
        environment: Environment variables, such as `os.environ`.
        settings: Settings by name, as the user passed them.
        resume: The run that the user passed; `None` for a new run.
        announce: Called with a line if the run begins again.

    Raises:
        UserError: A file of the run cannot be removed.
    """
    notes = environment.get(NOTES)
    if not notes or environment.get(RESTART_COUNT, "0") == "0":
        return dict(settings), resume
    try:
        run = Path(notes, _NOTE_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:  # the workers ended before a run began
        return dict(settings), resume
    run_settings = {**settings, "run_dir": run}
    if Path(settings.get("run_dir") or run) != Path(run):  # the program trains several runs
        return dict(settings), resume
    if _can_be_resumed(run):
        return run_settings, run
    if worker_place(environment).is_chief and clear_run(Path(run)):
        announce(f"{run} has no checkpoints (see --checkpoint-every): training starts again")
    return run_settings, resume


def _can_be_resumed(path: str) -> bool:
    """Whether a run saves checkpoints, or is finished.

    Resuming a finished run prints that nothing is left to train.
    """
    try:
        with local_records(path) as folder:
            run = read_run(folder, unfinished=True)
    except (UserError, OSError):  # the run was never trained, or the chief has cleared its folder
        return False
    return run.settings.get("checkpoint_every") is not None or run.status == "complete"
