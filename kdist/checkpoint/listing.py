"""`kdist checkpoints`: list, verify and export the checkpoints of a run."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..arguments import path_text
from ..errors import UserError
from ..files import output_file
from .store import CheckpointFile, DamagedCheckpointError, checkpoint_files

_HEADING = ("epoch", "step", "size", "age", "state", "file")
_UNITS = ((86_400, "days"), (3600, "h"), (60, "min"))


def list_checkpoints(
    path: str,
    *,
    verify: bool = False,
    export: str | None = None,
    announce: Callable[[str], None] = print,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Print the checkpoints of a run, the newest first, without TensorFlow unless one is exported.

    Args:
        path: A run folder, or the folder of a `Checkpoint`.
        verify: Compare every byte with the SHA-256 in the file's name. Otherwise a checkpoint is
            called whole if its file is as long as it says.
        export: Save the model of the newest whole checkpoint as this `.keras` file.
        announce: Called with each line.
        clock: Returns the time in seconds since 1970.

    Returns:
        Whether all of them are whole.

    Raises:
        UserError: There are no checkpoints, none is whole to be exported, or the file cannot be
            written.
    """
    found = checkpoint_files(_folder_of(path))
    target = None if export is None else output_file(export, option="--export")
    if target is not None and target.suffix != ".keras":
        raise UserError(f"--export is {export}: pass a file whose name ends in .keras")
    if not found:
        raise UserError(
            f"{path} has no checkpoints: pass the folder of a run with --checkpoint-every, or that"
            " of kdist.callbacks.Checkpoint"
        )
    problems, rows = {}, []
    for one in found:
        problem = _problem(one, verify=verify)
        row = _row(one, problem, clock())
        if row is not None:  # else a training that runs has removed it meanwhile
            problems[one] = problem
            rows.append(row)
    for line in _aligned([_HEADING, *rows]):
        announce(line)
    if target is not None:
        whole = [one for one, problem in problems.items() if problem is None]
        _export(whole, target, announce)
    return not any(problems.values())


def _folder_of(path: str) -> Path:
    folder = Path(path_text("the run", path))
    if not os.path.isdir(folder):  # unlike `Path`, also of a path that no file can have
        raise UserError(f"{folder} is not a folder: pass that of a run")
    inner = folder / "checkpoints"
    return inner if inner.is_dir() else folder


def _problem(checkpoint: CheckpointFile, *, verify: bool) -> str | None:
    try:
        checkpoint.check_length()
        if verify:
            checkpoint.verify()
    except DamagedCheckpointError as error:
        return str(error)
    return None


def _row(checkpoint: CheckpointFile, problem: str | None, now: float) -> Sequence[str] | None:
    """The line of a checkpoint; `None` if it is no longer there."""
    within = checkpoint.batch > 0
    try:
        size, saved_at = checkpoint.size, checkpoint.saved_at
    except FileNotFoundError:
        return None
    return (
        f"{checkpoint.epoch + within}",
        f"{checkpoint.batch}" if within else "end",
        f"{size / 1e6:,.1f} MB",
        _age(now - saved_at),
        "whole" if problem is None else f"damaged: {problem}",
        checkpoint.path.name,
    )


def _age(seconds: float) -> str:
    for unit, name in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _export(whole: Sequence[CheckpointFile], path: Path, announce: Callable[[str], None]) -> None:
    from .export import export_model

    for checkpoint in whole:
        try:
            checkpoint.verify()
        except DamagedCheckpointError as error:
            announce(f"Skipped the damaged checkpoint {checkpoint.path.name}: {error}")
            continue
        export_model(checkpoint, path)
        announce(f"Exported {checkpoint.path.name} to {path}")
        return
    raise UserError("none of these checkpoints is whole, so none can be exported")
