"""Runs one point in a process of its own, and makes its row."""

import contextlib
import csv
import errno
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..whole_files import write_whole
from .experiment import Point, Row
from .results import COLUMNS
from .sweep_folder import as_json

OUT_OF_MEMORY = "out of memory"
DISK_FULL = "No space left on device"

_MEMORY_WORDS = re.compile(
    r"ResourceExhausted|OOM when allocating|OutOfMemory|out of memory|MemoryError|std::bad_alloc"
    r"|Cannot allocate memory",
    re.I,
)
# What a log's last lines are, where an error came before them.
_NO_ERROR = re.compile(r"^\s*$|^[IW]\d{4} |^\d{4}-\d\d-\d\d .*: [IW] ")
_TAIL = 400
# On a full disk the run's process cannot write that it is full.
_LEAST_FREE_BYTES = 2**16


def run_point(point: Point, folder: Path, kind: str) -> Row:
    """Run a point in its folder, which is empty.

    The run's own folder is `run/`, what its process prints goes into `output.log` and `errors.log`.

    Args:
        point: The point.
        folder: Its folder.
        kind: Of the sweep.

    Returns:
        Its row; a run that failed has the status `"failed"` and an error.

    Raises:
        OSError: The disk is full, for this process or the run's.
        KeyboardInterrupt: Ctrl-C; the run's process is ended.
    """
    row = dict.fromkeys(COLUMNS) | {"name": point.name, "kind": kind, **point.axes}
    order = {
        "config": {**point.config, "run_dir": str(folder / "run")},
        "leave_out": point.leave_out,
        "parent": os.getpid(),
    }
    write_whole(folder / "order.json", as_json(order))
    code = _run_process(folder)
    errors = _text(folder / "errors.log")
    if code and (DISK_FULL in errors or shutil.disk_usage(folder).free < _LEAST_FREE_BYTES):
        raise OSError(errno.ENOSPC, DISK_FULL)
    if code:
        return row | {"status": "failed", "error": explain(code, errors)}
    try:
        return row | read_run(folder / "run") | {"status": "done", "run_dir": _relative(folder)}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        told = f"its run folder cannot be read: {type(error).__name__}: {error}"
        return row | {"status": "failed", "error": told}


def command(folder: Path) -> list[str]:
    """The process of the point in `folder`."""
    return [sys.executable, "-m", "kdist.sweep.worker", str(folder / "order.json")]


def _run_process(folder: Path) -> int:
    with open(folder / "output.log", "wb") as output, open(folder / "errors.log", "wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for the sweep, which ends the run
        )
        try:
            return process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


def explain(code: int, errors: str) -> str:
    """Why a process ended with `code`, from what it wrote to standard error."""
    if _MEMORY_WORDS.search(errors):
        return f"{OUT_OF_MEMORY}: {_first_line(errors, _MEMORY_WORDS)}"
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return f"{OUT_OF_MEMORY}, most likely: its process was killed"
    lines = [line.strip() for line in errors.splitlines() if not _NO_ERROR.match(line)]
    told = lines[-1][-_TAIL:] if lines else "it printed no error"
    by = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{told} ({by})"


def read_run(run: Path) -> Row:
    """What a run folder tells of a point.

    Raises:
        OSError: A file is missing.
        ValueError: A file is broken; `KeyError`, `TypeError`, `IndexError` likewise.
    """
    summary: Mapping[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    history = list(csv.DictReader((run / "history.csv").read_text(encoding="utf-8").splitlines()))
    warm = [float(line["images_per_sec"]) for line in history[1:]]
    noise = [float(line.get("gradient_noise_scale") or "nan") for line in history]
    known = [value for value in noise if not math.isnan(value)]
    if not all(0 < rate < math.inf for rate in warm):
        raise ValueError(f"speeds of {', '.join(map(str, warm))} images a second")
    reached = bool(summary["reached_target"])
    # The target counts as met in the first epoch of the row that patience asks for.
    met = history[len(history) - config["patience"]] if reached else history[-1]
    images, batch = summary["training_images"], summary["global_batch"]
    return {
        "global_batch": batch,
        "images_per_step": images / -(-images // batch),
        "images_per_sec": statistics.median(warm) if warm else None,
        "images_per_sec_low": min(warm, default=None),
        "images_per_sec_high": max(warm, default=None),
        "learning_rate": summary["learning_rate"],
        "seconds": float(history[-1]["seconds"]),
        "epochs": len(history),
        "reached_target": reached if config["validate"] else None,
        "seconds_to_target": float(met["seconds"]) if reached else None,
        "epochs_to_target": int(met["epoch"]) if reached else None,
        "val_accuracy": summary["val_accuracy"],
        "best_val_accuracy": summary["best_val_accuracy"],
        "noise_scale": known[-1] if known else None,
    }


def _relative(folder: Path) -> str:
    return f"points/{folder.name}/run"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _first_line(text: str, words: re.Pattern[str]) -> str:
    return next(line.strip() for line in text.splitlines() if words.search(line))[:_TAIL]
