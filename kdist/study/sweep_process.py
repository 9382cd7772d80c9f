"""Runs one point of a grid in processes of its own, and makes its row."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..charts.statistics import Row
from ..checkpoint.store import checkpoint_files
from ..errors import UserError
from ..files import atomic_write, parse_json, read_text
from ..launch.child import Child, Verdict
from ..runs.record import RunRecord, read_run
from .folder import as_json
from .record import why_invalid
from .sweep_experiment import Experiment, Point


def can_be_resumed(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a point's folder has checkpoints of a run with these settings.

    Args:
        folder: Of the point; may be missing.
        config: Settings of the point's run.
    """
    if config.get("checkpoint_every") is None:
        return False
    try:
        order = parse_json(read_text(folder / "order.json"))["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    same = json.loads(json.dumps(run_config(folder, config)))
    return bool(order == same and checkpoint_files(folder / "run" / "checkpoints"))


def run_config(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a point's run, with its folder."""
    return {**config, "run_dir": str(folder / "run")}


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a point that ended: a sweep has many points."""
    shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)


# On a full disk the run's process cannot write that it is full.
_LEAST_FREE_BYTES = 2**16


def run_point(point: Point, folder: Path, experiment: type[Experiment]) -> Row:
    """Run a point in its folder, which is empty or has a run that can be resumed.

    The run's own folder is `run/`, what its process prints goes into `output.log` and `errors.log`.
    A run whose checkpoints are refused is begun anew; one that fails for another reason keeps them.

    Args:
        point: The point.
        folder: Its folder.
        experiment: Whose point it is.

    Returns:
        Its row; a run that failed has the status `"failed"` and an error.

    Raises:
        OSError: The disk is full, for this process or the run's.
        KeyboardInterrupt: Ctrl-C; the run's process is ended.
    """
    row: Row = dict.fromkeys(experiment.columns())
    row |= {"name": point.name, "kind": experiment.kind, **point.axes}
    resume = can_be_resumed(folder, point.config)
    verdict, is_refused = _run_process(point, folder, resume=resume)
    if is_refused and resume:
        shutil.rmtree(folder / "run")
        verdict, _ = _run_process(point, folder, resume=False)
    if verdict.cause:
        return row | {"status": "failed", "error": verdict.line}
    try:
        run = read_run(folder / "run")
        found = measure(run)
        if found["diverged"] and not experiment.trains:
            return row | {"status": "failed", "error": f"the loss was not finite: {_where(run)}"}
        asked = row["batch_size"] * row["replicas"]
        if point.config.get("model") and found["global_batch"] != asked:
            return row | {"status": "failed", "error": _own_batch(found["global_batch"], asked)}
        finished = row | found | {"status": "done", "run_dir": _relative(folder)}
        invalid = why_invalid(finished, experiment.kind, file="it")
        if not invalid:
            remove_checkpoints(folder)
            return finished
    except (UserError, OSError) as error:
        invalid = str(error)
    return row | {"status": "failed", "error": f"its run folder cannot be read: {invalid}"}


def command(folder: Path) -> list[str]:
    """The process of the point in `folder`."""
    return [sys.executable, "-m", "kdist.study.point_process", str(folder / "order.json")]


def _run_process(point: Point, folder: Path, *, resume: bool) -> tuple[Verdict, bool]:
    """Run the point's process, whose logs follow those of the one before.

    Returns:
        Why it ended, and whether it refused the checkpoints.

    Raises:
        OSError: It failed as the disk is full, or this process cannot write.
    """
    order = {
        "config": run_config(folder, point.config),
        "resume": resume,
        "workers": point.workers,
    }
    atomic_write(folder / "order.json", as_json(order))
    log = folder / "errors.log"
    with open(folder / "output.log", "ab") as output, open(log, "ab") as errors:
        begin = errors.tell()
        with Child(command(folder), output=output, errors=errors) as child:
            child.wait()
    said = log.read_bytes()[begin:].decode("utf-8", errors="replace")
    verdict = child.verdict(said)
    is_full = verdict.cause == "disk" or shutil.disk_usage(folder).free < _LEAST_FREE_BYTES
    if verdict.cause and is_full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return verdict, bool(verdict.cause and child.answers.get("refused"))


def measure(run: RunRecord) -> Row:
    """The columns that are read from a run's folder.

    Raises:
        UserError: The run has no epoch, or no images.
    """
    images, batch = (int(run.fact(name) or 0) for name in ("training_images", "global_batch"))
    diverged = run.summary.get("diverged") is not None
    if not (run.epochs or diverged) or not images or not batch:
        raise UserError("it has no epoch, or no training images")
    noise = [value for value in run.values("gradient_noise_scale") if value is not None]
    rates = run.rates if run.is_warm else []
    return {
        "global_batch": batch,
        "images_per_step": images / -(-images // batch),
        "images_per_sec": run.images_per_sec if rates else None,
        "images_per_sec_low": min(rates, default=None),
        "images_per_sec_high": max(rates, default=None),
        "learning_rate": run.fact("learning_rate"),
        "seconds": run.fact("seconds") if diverged else run.epochs[-1]["seconds"],
        "epochs": len(run.epochs),
        "diverged": diverged,
        "reached_target": run.met is not None if run.settings.get("validate") else None,
        "seconds_to_target": run.met.seconds if run.met else None,
        "epochs_to_target": run.met.epoch if run.met else None,
        "val_accuracy": run.fact("val_accuracy"),
        "best_val_accuracy": run.fact("best_val_accuracy"),
        "noise_scale": noise[-1] if noise else None,
    }


def _own_batch(batch: int, asked: int) -> str:
    return (
        f"its data have batches of {batch}, not of {asked}: let the data function take batch_size,"
        " or return arrays"
    )


def _where(run: RunRecord) -> str:
    """The epoch and step of a run that diverged."""
    return ", ".join(f"{name} {value}" for name, value in run.summary["diverged"].items())


def _relative(folder: Path) -> str:
    return f"points/{folder.name}/run"
