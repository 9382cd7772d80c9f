"""Show the results of a sweep that has ended, without TensorFlow."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import UserError
from .driver import ended_rows
from .experiment import Experiment, ExperimentOrMaker
from .output import print_chart, print_line, print_results, say_whether_all_failed
from .results import Sweep, read_sweep
from .sweep_folder import check_same, read_summary


def show_finished(
    experiment: ExperimentOrMaker,
    folder: Path,
    *,
    machine: Callable[..., dict[str, Any]],
    retry_failed: bool,
    console: Console,
) -> int | None:
    """Show the results of a sweep, if all its points have ended.

    Args:
        experiment: As for `sweep`.
        folder: Its folder, which may contain anything.
        machine: See `kdist.performance.hardware.machine`. The devices are taken to be those that
            the sweep ran on, as TensorFlow takes seconds to list them.
        retry_failed: Whether failed points are to be run again.
        console: Takes all output.

    Returns:
        The exit code; `None` if points are left.

    Raises:
        UserError: The folder contains another sweep, or one of another machine.
    """
    try:
        sweep = read_sweep(folder)
    except UserError:
        return None  # `open_folder` says why
    if not sweep.points:
        return None
    here = machine(devices=sweep.machine.get("devices") or [])
    asked = experiment if isinstance(experiment, Experiment) else experiment(sweep.machine)
    wanted = {"kind": asked.kind, "settings": asked.settings, "machine": here}
    check_same(sweep, json.loads(json.dumps(wanted)))
    summary = read_summary(folder)
    if summary is None or not _is_complete(sweep, asked, retry_failed):
        return None
    try:
        print_results(console, type(asked), summary)
    except (KeyError, TypeError, ValueError):  # of another version: it is summed up again
        return None
    for path in sorted(folder.glob("*.png")):
        print_chart(console, path)
    print_line(
        console,
        f"The sweep in {folder} is finished: to run it again, pass another --output",
    )
    return say_whether_all_failed(console, len(summary["failed"]), len(asked.points()))


def _is_complete(sweep: Sweep, experiment: Experiment, retry_failed: bool) -> bool:
    rows, skipped = ended_rows(experiment, sweep.path)
    failed = any(row["status"] == "failed" for row in rows.values())
    return not skipped and len(rows) == len(experiment.points()) and not (failed and retry_failed)
