"""Which of several workers this process is, and which run it was that they start again."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..launch.places import NOTES, RESTART_COUNT
from ..runs.folder import RunFolder, clear_run, saved_model
from ..runs.record import read_run


@dataclasses.dataclass(frozen=True)
class WorkerPlace:
    """This process among those that train together.

    Attributes:
        workers: Their number.
        is_chief: Whether this one writes the run's files and prints.
    """

    workers: int = 1
    is_chief: bool = True


def worker_place(environment: Mapping[str, str]) -> WorkerPlace:
    """Return the place that `TF_CONFIG` gives this process, such as under `kdist launch`.

    What is wrong with a `TF_CONFIG`, the strategy says.

    Args:
        environment: Such as `os.environ`.

    Example:
        >>> worker_place({})
        WorkerPlace(workers=1, is_chief=True)
    """
    try:
        config = json.loads(environment.get("TF_CONFIG") or "{}")
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        workers = sum(len(cluster[kind]) for kind in cluster if kind in ("chief", "worker"))
        first = "chief" if "chief" in cluster else "worker"
        is_chief = (task.get("type"), task.get("index")) == (first, 0)
    except (ValueError, TypeError, AttributeError):
        return WorkerPlace(workers=2, is_chief=True)
    return WorkerPlace(workers, is_chief) if workers > 1 else WorkerPlace()


def refuse_workers(environment: Mapping[str, str], command: str, *, instead: str) -> None:
    """Reject a command that starts trainings itself, where a launcher has started several.

    Args:
        environment: Such as `os.environ`.
        command: The command.
        instead: What to do.

    Raises:
        UserError: There are several workers.
    """
    workers = worker_place(environment).workers
    if workers > 1:
        raise UserError(
            f"{command} starts its own trainings, each on one machine, but TF_CONFIG has"
            f" {workers} workers: {instead}"
        )


class OtherWorkersFolder(RunFolder):
    """The run folder as a worker has it that is not the chief: it writes nothing."""

    is_written = False

    def __init__(self) -> None:
        self.path = Path("runs")
        self.is_resumed = False

    def discard(self) -> None:
        """Leave the run to the chief."""

    def remove_summary(self) -> None:
        """Leave the run to the chief."""

    def write(self, path: Path, save: Callable[[Path], object]) -> None:
        """Leave the run to the chief."""


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
    lacks_model = bool(run.settings.get("save_model")) and saved_model(path) is None
    return run.status.is_complete and not lacks_model
