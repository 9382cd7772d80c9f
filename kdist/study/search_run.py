"""`tune`: run a hyperparameter search, from its settings to its folder."""

import os
import warnings
from collections.abc import Callable

from rich.console import Console

from ..checkpoint.store import checkpoint_files
from ..errors import UserError
from ..runs.text import count
from ..tracking.factory import TRACKER_KINDS
from ..training.workers import refuse_workers
from ..user_model.functions import files_of
from .folder import StudyFolder
from .loading import load_tuner
from .search_processes import Role, read_role, refuse_own_processes, run_parallel
from .search_settings import MAY_CHANGE, Search
from .search_trials import read_trials, report


def tune(search: Search, *, announce: Callable[[str], None] = print) -> StudyFolder:
    """Run a search, resume one that was interrupted, or show the results of a finished one.

    If KerasTuner's environment variables are set (`KERASTUNER_TUNER_ID`, `KERASTUNER_ORACLE_IP`,
    `KERASTUNER_ORACLE_PORT`), this process is the chief or a worker of a search on several
    machines, which share its folder.

    Args:
        search: The settings.
        announce: Called with lines about the progress, and with the table of results at the end.

    Returns:
        The folder, with `best.json`, `trials.csv`, `trials.png` and KerasTuner's files.

    Raises:
        UserError: Settings, data, model or folder are invalid, or too many trials in a row failed.
            Finished trials and checkpoints are kept: the same command resumes the search. Nothing
            is left if there are none.
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP. The same is kept as after an error.

    Example:
        ```python
        search = kdist.study.Search(max_trials=20, output="runs/tune")
        kdist.study.tune(search)
        model = kdist.study.tuner_of("runs/tune").get_best_models()[0]
        ```
    """
    refuse_workers(
        os.environ,
        "kdist tune",
        instead="run it on one machine, without a launcher; --workers N trains N trials at once,"
        " KERASTUNER_TUNER_ID spreads them over machines",
    )
    if search.model is not None:
        files_of(search.model, search.data)
    for name in search.config.trackers:
        TRACKER_KINDS[name].check()  # one that cannot work would fail every trial
    folder, role = StudyFolder(search.output), read_role(os.environ)
    refuse_own_processes(role, search.per_trial)
    if role.is_worker:
        run_trials(search, folder, role, announce=announce)
        return folder
    with folder.open(search.about, may_change=MAY_CHANGE) as resumed:
        try:
            _search(search, folder, role, announce, resumed=resumed)
        except BaseException:
            # Workers of other machines may have begun trials.
            began = any(folder.trials.glob("trial_*"))
            worth = resumed or _has_ended_trials(folder) or _has_checkpoints(folder)
            if not (worth or (began and role.is_chief)):
                folder.discard()
            raise
    return folder


def _search(
    search: Search,
    folder: StudyFolder,
    role: Role,
    announce: Callable[[str], None],
    *,
    resumed: bool,
) -> None:
    """Run the trials that are left, and report all of them."""
    summary = folder.read_summary()
    finished = summary is not None and summary.get("max_trials") == search.max_trials
    if not finished:
        if resumed:
            known = read_trials(folder, search)
            ended = [trial for trial in known if trial.status in ("COMPLETED", "FAILED")]
            announce(f"Resuming {folder.path}: {count(len(ended), 'trial')} finished")
        _run(search, folder, role, announce)
    report(search, folder, announce=announce)
    _check_failures(search, folder)
    if finished:
        announce(f"The search in {folder.path} is finished: {_how_to_continue(search)}")
    folder.write("summary.json", {"points_left": 0, "max_trials": search.max_trials})


def run_trials(
    search: Search, folder: StudyFolder, role: Role, *, announce: Callable[[str], None] = print
) -> None:
    """Run the remaining trials in this process; a chief hands them out to workers instead."""
    screen = Console()
    alone = role.tuner_id is None and screen.is_terminal and not screen.is_dumb_terminal
    console = screen if alone else None
    tuner = load_tuner(search, folder, role, announce=announce, console=console)
    with warnings.catch_warnings():
        # A Gaussian process fitted to few points warns that it has not converged.
        warnings.filterwarnings("ignore", module="sklearn")
        tuner.search(verbose=0)


def _run(search: Search, folder: StudyFolder, role: Role, announce: Callable[[str], None]) -> None:
    if search.per_trial is None:
        run_trials(search, folder, role, announce=announce)
        return
    run_parallel(search, folder, announce=announce)


def _has_ended_trials(folder: StudyFolder) -> bool:
    oracle = folder.read("trials/oracle.json") or {}
    return bool(oracle.get("end_order"))


def _has_checkpoints(folder: StudyFolder) -> bool:
    """Whether a trial was interrupted that continues from there."""
    return any(map(checkpoint_files, folder.trials.glob("trial_*/checkpoints/*")))


def _how_to_continue(search: Search) -> str:
    if search.max_trials is None:  # Hyperband's own number
        return "pass another --output for a new one"
    return "pass a larger --max-trials to continue, or another --output for a new one"


def _check_failures(search: Search, folder: StudyFolder) -> None:
    trials = read_trials(folder, search)
    failed = [trial for trial in trials if trial.status == "FAILED"]
    # With several at once, the trial that started last need not end last.
    last = read_trials(folder, search, order="end_order")[-search.max_failures :]
    stopped = len(last) == search.max_failures and all(trial in failed for trial in last)
    enough = search.max_trials is not None and len(trials) >= search.max_trials
    if failed and (len(failed) == len(trials) or (stopped and not enough)):
        which = "all" if len(failed) == len(trials) else "the last"
        number = min(len(failed), search.max_failures)
        some = f"{which} {number} trials failed, the last" if number > 1 else "its trial failed,"
        raise UserError(
            f"the search has stopped, as {some} with {failed[-1].failure!r}: see"
            f" {folder.trials}/trial_{failed[-1].trial_id}/failure.txt; pass a larger"
            " --max-failures to resume it, or another --output for a new search"
        )
