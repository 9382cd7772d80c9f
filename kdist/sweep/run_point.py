"""Runs one point in a separate process, and makes its row."""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from ..analysis.groups import Row
from ..errors import UserError
from ..files import atomic_write, says_full_disk
from ..launch.child import says_out_of_memory
from ..runs.run_record import RunRecord, read_run
from ..signals import hold_signals
from .experiment import Experiment, Point
from .results import why_invalid
from .resumable import can_be_resumed, remove_checkpoints, run_config
from .sweep_folder import as_json
from .worker import REFUSED
from .workers import FIRST_ERROR

OUT_OF_MEMORY = "out of memory"

# What a log's last lines are, where an error came before them.
_NO_ERROR = re.compile(r"^\s*$|^[IW]\d{4} |^\d{4}-\d\d-\d\d .*: [IW] ")
_TAIL = 400
# What a worker says that is ended by kdist; its launcher writes its number before each line.
_OWN_ERROR = re.compile(r"^(?:\[\d+\] )?kdist: error: (.+)$", re.MULTILINE)
# On a full disk the run's process cannot write that it is full.
_LEAST_FREE_BYTES = 2**16
# A launcher that is told twice ends its workers within a second.
_TIMES_TOLD = 100
_SECONDS_UNTIL_TOLD_AGAIN = 0.1


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
    code, errors = _run_process(point, folder, resume=resume)
    if code and resume and REFUSED in errors:
        shutil.rmtree(folder / "run")
        code, errors = _run_process(point, folder, resume=False)
    if code:
        return row | {"status": "failed", "error": explain(code, errors)}
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


def command(folder: Path, workers: int) -> list[str]:
    """The process of the point in `folder`, or the one that starts its workers."""
    module = "kdist.sweep.worker" if workers == 1 else "kdist.sweep.workers"
    return [sys.executable, "-m", module, str(folder / "order.json")]


def _run_process(point: Point, folder: Path, *, resume: bool) -> tuple[int, str]:
    """Run the point's process, whose logs follow those of the one before.

    Returns:
        Its exit code, and what it wrote to standard error.

    Raises:
        OSError: It failed as the disk is full, or this process cannot write.
    """
    order = {
        "config": run_config(folder, point.config),
        "parent": os.getpid(),
        "resume": resume,
        "workers": point.workers,
    }
    atomic_write(folder / "order.json", as_json(order))
    log = folder / "errors.log"
    with open(folder / "output.log", "ab") as output, open(log, "ab") as errors:
        begin = errors.tell()
        process: subprocess.Popen[bytes] | None = None
        try:
            with hold_signals() as received:  # a process that nobody knows would not be ended
                process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    command(folder, point.workers),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C is for the sweep, which ends the run
                )
            received.check()
            code = process.wait()
        except BaseException:
            if process is not None:
                _end(process, workers=point.workers)
            raise
    said = log.read_bytes()[begin:].decode("utf-8", errors="replace")
    if code and (says_full_disk(said) or shutil.disk_usage(folder).free < _LEAST_FREE_BYTES):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return code, said


def _end(process: "subprocess.Popen[bytes]", *, workers: int) -> None:
    # Workers have groups of their own, which their launcher kills at the second signal.
    for _ in range(_TIMES_TOLD if workers > 1 else 0):
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_UNTIL_TOLD_AGAIN)
            break
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def explain(code: int, errors: str) -> str:
    """Why a process ended with `code`, from what it or its workers wrote to standard error."""
    is_killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    cause = errors.rpartition(FIRST_ERROR)[2]  # of several workers
    # One that froze is killed, too, and another one may have said so.
    told = _OWN_ERROR.findall(cause) or (_OWN_ERROR.findall(errors) if is_killed else [])
    errors = told[-1][:_TAIL] if told else cause
    if says_out_of_memory(errors):
        first = next(line.strip() for line in errors.splitlines() if says_out_of_memory(line))
        first = first[:_TAIL]
        return first if first.startswith(OUT_OF_MEMORY) else f"{OUT_OF_MEMORY}: {first}"
    if is_killed and not told:
        return f"{OUT_OF_MEMORY}, most likely: its process was killed"
    lines = [line.strip() for line in errors.splitlines() if not _NO_ERROR.match(line)]
    last = lines[-1][-_TAIL:] if lines else "it printed no error"
    by = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{last} ({by})"


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
