"""Runs one point of a sweep in processes of its own, which are this program, and makes its row."""

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
from ..errors import RefusedCheckpointsError, TrainingError, UserError
from ..files import atomic_write, parse_json, read_text
from ..launch.child import Child, Verdict, answer
from ..runs.record import RunRecord, read_run
from ..training.config import TrainConfig
from .folder import as_json
from .sweep_experiment import Experiment, Point, why_invalid


def can_be_resumed(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether a point's folder, which may be missing, has checkpoints of a run with these settings.

    Args:
        folder: Of the point.
        config: Settings of the point's run.
    """
    if config.get("checkpoint_every") is None:
        return False
    try:
        order = parse_json(read_text(folder / "order.json"))["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    same = json.loads(json.dumps(_run_config(folder, config)))
    return bool(order == same and checkpoint_files(folder / "run" / "checkpoints"))


def _run_config(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    return {**config, "run_dir": str(folder / "run")}


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
            where = ", ".join(f"{name} {value}" for name, value in run.summary["diverged"].items())
            return row | {"status": "failed", "error": f"the loss was not finite: {where}"}
        asked = row["batch_size"] * row["replicas"]
        if point.config.get("model") and found["global_batch"] != asked:
            error = (
                f"its data have batches of {found['global_batch']}, not of {asked}: let the data"
                " function take batch_size, or return arrays"
            )
            return row | {"status": "failed", "error": error}
        place = f"points/{folder.name}/run"
        finished = row | found | {"status": "done", "run_dir": place}
        invalid = why_invalid(finished, experiment)
        if not invalid:
            # A sweep has many points.
            shutil.rmtree(folder / "run" / "checkpoints", ignore_errors=True)
            return finished
    except (UserError, OSError) as error:
        invalid = str(error)
    return row | {"status": "failed", "error": f"its run folder cannot be read: {invalid}"}


# On a full disk the run's process cannot write that it is full.
_LEAST_FREE_BYTES = 2**16


def command(folder: Path) -> list[str]:
    """The process of the point in `folder`."""
    return [sys.executable, "-m", "kdist.study.sweep_process", str(folder / "order.json")]


def _run_process(point: Point, folder: Path, *, resume: bool) -> tuple[Verdict, bool]:
    """Run the point's process, whose logs follow those of the one before.

    Returns:
        Why it ended, and whether it refused the checkpoints.

    Raises:
        OSError: It failed as the disk is full, or this process cannot write.
    """
    config = _run_config(folder, point.config)
    atomic_write(folder / "order.json", as_json({"config": config, "resume": resume}))
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
    rates, met_epoch = run.rates if run.is_warm else [], run.fact("met_epoch")
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
        "reached_target": met_epoch is not None if run.settings.get("validate") else None,
        "seconds_to_target": run.fact("met_seconds"),
        "epochs_to_target": None if met_epoch is None else int(met_epoch),
        "val_accuracy": run.fact("val_accuracy"),
        "best_val_accuracy": run.fact("best_val_accuracy"),
    }


def main() -> None:
    """In a process of a point: train as the file says, with `config` and `resume`."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        _train(order)
    except (UserError, TrainingError) as error:
        print(error, file=sys.stderr)
        if isinstance(error, UserError):
            answer(mistake=str(error), refused=isinstance(error, RefusedCheckpointsError))
        sys.exit(2 if isinstance(error, UserError) else 1)


def _train(order: Mapping[str, Any]) -> None:
    from ..training.train_run import train

    config = TrainConfig.from_dict(order["config"])
    result = train(config, verbose=2, resume=order["resume"], or_sample=False)
    if result.interrupted and result.signal is not None:  # too few epochs to measure
        print(f"interrupted by {result.signal.name}", file=sys.stderr)
        sys.exit(128 + result.signal)


if __name__ == "__main__":
    main()
