"""`tune`: runs the remaining trials of a search, and shows the results."""

import dataclasses
import os
from collections.abc import Sequence

from rich.console import Console

from ..errors import UserError, message_without_path
from ..processes.child import Resources
from ..processes.device_assignment import assign_devices, visible_cores, visible_gpus
from ..tracking.make_trackers import check_trackers
from ..training.printed_lines import format_count
from ..training.run import load_data
from ..workers.tf_config import refuse_workers
from .run_trials import Outcome, StartTrial, TrialRunner, print_end
from .search_results import best_settings, make_trials_table, sort_trials
from .search_settings import MAY_CHANGE, Search
from .study_folder import Row, StudyFolder
from .tables import print_line, print_table
from .trial_process import TrialProcess


def tune(
    search: Search, *, start: StartTrial = TrialProcess, console: Console | None = None
) -> Outcome:
    """Run a search, resume an interrupted search, or show the results of a finished search.

    Every trial is a run in a separate process; an interrupted trial continues from its checkpoint.

    Args:
        search: The settings.
        start: Starts the process of a trial.
        console: Prints all output.

    Raises:
        UserError: Settings, data or folder are invalid; nothing was run then.

    Examples:
        ```python
        search = kdist.study.Search(max_trials=20, output="runs/tune")
        outcome = kdist.study.tune(search)
        ```
    """
    refuse_workers(
        os.environ,
        "kdist tune",
        instead="run it on one machine, without a launcher; --workers N trains N trials at once",
    )
    check_trackers(search.config.trackers)  # a tracker that cannot start would fail every trial
    search, shares = divide_machine(search)
    console, folder = console or Console(), StudyFolder(search.output, "trial")
    folder.check_place()
    load_data(search.config, announce=lambda line: print_line(console, line), may_use_sample=False)
    from .search_trials import SearchTrials, make_oracle  # imports TensorFlow, which takes seconds

    make_oracle(search)  # rejects a wrong range before the folder is created
    with folder.open(search.info, may_change=MAY_CHANGE) as resumed:
        rows = folder.read_rows()
        resuming = f"Resuming the search in {folder.path} after {format_count(len(rows), 'trial')}"
        print_line(console, resuming if resumed else f"Search folder: {folder.path}")
        trials = SearchTrials(search, folder, rows)
        outcome = TrialRunner(trials, folder, rows, console, shares=shares, start=start).run()
        remedy = "run the same command again"
        if trials.failed_too_often and outcome.signal is None:
            remedy = "fix the cause, and run the same command again"
            number, last = search.max_failures, outcome.rows[-1]["error"]
            in_a_row = (
                f"{number} trials in a row failed, the last" if number > 1 else "a trial failed,"
            )
            outcome = dataclasses.replace(outcome, stop_reason=f"{in_a_row} with {last!r}")
        if outcome.rows:
            try:
                _report_best(search, folder, outcome.rows, console)
            except OSError as error:
                outcome = dataclasses.replace(outcome, stop_reason=message_without_path(error))
    print_end(outcome, folder.noun, console, remedy=remedy)
    if len(outcome.rows) == len(rows) and outcome.is_whole:
        print_line(
            console,
            f"The search in {folder.path} is finished: pass a larger --max-trials to continue, or"
            " another --output for a new search",
        )
    return outcome


def divide_machine(search: Search) -> tuple[Search, Sequence[Resources]]:
    """Return the search with its replicas per trial, and the share of each worker.

    By default, simultaneous trials divide the GPUs; without GPUs, each trial has one replica.

    Raises:
        UserError: There are too few GPUs, or they cannot be divided evenly.
    """
    if search.workers is None:
        return search, (Resources(),)
    gpus, replicas = visible_gpus(os.environ), search.config.replicas
    if replicas is None:
        first, *_ = assign_devices(workers=search.workers, gpus=gpus, cores=())
        replicas = len(first.gpus or ()) or 1
    used = search.workers * replicas
    if gpus and used > len(gpus):
        raise UserError(
            f"received {search.workers} workers with {replicas} replicas each, but {len(gpus)} GPUs"
            " are visible: lower --workers or --replicas"
        )
    config = dataclasses.replace(search.config, replicas=replicas)
    shares = assign_devices(workers=search.workers, gpus=gpus[:used], cores=visible_cores())
    return dataclasses.replace(search, config=config), shares


def _report_best(
    search: Search, folder: StudyFolder, rows: Sequence[Row], console: Console
) -> None:
    """Print the table, and write the best settings."""
    print_table(console, make_trials_table(rows, search))
    for row in rows:
        if row["status"] == "failed":
            print_line(console, f"Failed: {row['name']}: {row['error']}")
    settings = best_settings(rows, search)
    if settings is None:
        print_line(console, "No trial was completed.")
        return
    best = sort_trials(rows, search)[0]
    folder.write_json("best.json", settings)
    print_line(console, f"Best trial: {best['name']}, {search.objective} {best['score']:.4g}")
    if best["reached"] is False:
        print_line(
            console,
            f"No trial beat the target accuracy of {search.config.target_accuracy:g}; a trial"
            " that misses the target gets a score of at least ten time budgets.",
        )
    print_line(console, f"Best settings: kdist train --config {folder.path / 'best.json'}")
