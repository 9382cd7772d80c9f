"""`tune`: runs a search, from its settings to its folder; `tuner_of`: its tuner of KerasTuner.

A chief and its workers are processes of `python -m kdist.study.search_run FOLDER`. TensorFlow and
Keras are imported inside the functions, as in `kdist.training.train_run`.
"""

import contextlib
import io
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..checkpoint.store import checkpoint_files
from ..errors import UserError
from ..runs.text import count
from ..signals import signal_of
from ..tracking.factory import tracking
from ..tracking.wandb_account import asked_mode
from ..training.config import TrainConfig, make_plan
from ..training.images import load_data
from ..training.user_model.functions import explain_errors_of, files_of
from ..training.worker_place import refuse_workers
from .folder import StudyFolder
from .search_processes import (
    ORACLE_IP,
    Role,
    SearchProcesses,
    read_role,
    running_marker,
    with_replicas,
)
from .search_settings import MAY_CHANGE, Search, read_search
from .search_space import Range
from .search_trials import TrialResult, read_trials, report, trial_config

if TYPE_CHECKING:
    import keras_tuner

    from ..data import ImageData
    from ..strategies.mirrored_strategy import MirroredStrategy
    from .search_tuner import ReplicaTuner


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
    if "wandb" in search.config.trackers:
        asked_mode()  # a wrong one would fail every trial
    folder, role = StudyFolder(search.output), read_role(os.environ)
    if role.tuner_id is not None and search.workers is not None:
        raise UserError(
            f"received workers={search.workers} and {ORACLE_IP}: --workers starts a chief and"
            " workers itself; unset the variable, or remove --workers"
        )
    if role.is_worker:
        run_trials(search, folder, role, announce=announce)
        return folder
    search = with_replicas(search)
    with folder.open(search.about, may_change=MAY_CHANGE) as resumed:
        try:
            _search(search, folder, role, announce, resumed=resumed)
        except BaseException:
            # Workers of other machines may have begun trials.
            began = role.is_chief and any(folder.trials.glob("trial_*"))
            if not (resumed or began or _can_be_resumed(folder)):
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
    trials = report(search, folder, announce=announce)
    _check_failures(search, folder, trials)
    if finished:
        more = "a larger --max-trials to continue, or another --output for a new one"
        if search.max_trials is None:  # Hyperband's own number
            more = "another --output for a new one"
        announce(f"The search in {folder.path} is finished: pass {more}")
    folder.write("summary.json", {"points_left": 0, "max_trials": search.max_trials})


def _can_be_resumed(folder: StudyFolder) -> bool:
    """Whether a trial has ended, or was interrupted and continues from its checkpoints."""
    ended = (folder.read("trials/oracle.json") or {}).get("end_order")
    return bool(ended) or any(map(checkpoint_files, folder.trials.glob("trial_*/checkpoints/*")))


def _run(search: Search, folder: StudyFolder, role: Role, announce: Callable[[str], None]) -> None:
    if search.workers is None:
        run_trials(search, folder, role, announce=announce)
    else:
        SearchProcesses(search, folder, announce).run()


def _check_failures(search: Search, folder: StudyFolder, trials: Sequence[TrialResult]) -> None:
    """Refuse to call a search finished that failures have ended."""
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


def tuner_of(path: str) -> "ReplicaTuner":
    """Load the tuner of the search in a folder.

    Args:
        path: The folder: the `--output` of `kdist tune`.

    Returns:
        A `keras_tuner.Tuner`, with `get_best_models`, `results_summary` and
        `get_best_hyperparameters`.

    Raises:
        UserError: There is no search in the folder.

    Example:
        ```python
        tuner = kdist.study.tuner_of("runs/tune")
        tuner.results_summary()
        model = tuner.get_best_models()[0]
        ```
    """
    folder = StudyFolder(path)
    search = read_search(folder)
    return load_tuner(search, folder, read_role(os.environ), trains=False)


def load_tuner(
    search: Search,
    folder: StudyFolder,
    role: Role,
    *,
    announce: Callable[[str], None] = print,
    console: Console | None = None,
    trains: bool = True,
) -> "ReplicaTuner":
    """Make the tuner of a search, with the trials in its folder.

    Args:
        search: The settings.
        folder: The folder of the search.
        role: The role of this process.
        announce: Called with lines about the progress.
        console: A terminal for progress bars.
        trains: Whether it will run trials, all of which need the same images.

    Raises:
        UserError: Data or model are invalid, the user's code raises an exception, or the folder
            has a different search space.
    """
    if search.model is None:
        # Before TensorFlow is imported: it takes seconds, and the data may be missing.
        trains = trains and not role.is_chief
        data = load_data(search.config, announce=announce, or_sample=not trains)
        return _tuner(search, folder, role, announce, console, data)
    with explain_errors_of(*files_of(search.model, search.data)):
        return _tuner(search, folder, role, announce, console, None)


def _tuner(
    search: Search,
    folder: StudyFolder,
    role: Role,
    announce: Callable[[str], None],
    console: Console | None,
    data: "ImageData | None",
) -> "ReplicaTuner":
    from ..strategies.mirrored_strategy import MirroredStrategy
    from .search_tuner import ReplicaTuner

    config = search.config
    strategy = MirroredStrategy(
        replicas=config.replicas, shards=config.shards, shard_optimizer=config.shard_optimizer
    )
    hypermodel: Any
    if data is None:
        hypermodel = _user_hypermodel(search, folder, strategy, role)
    else:
        from .search_models import WideResNetHyperModel

        hypermodel = WideResNetHyperModel(search.search_space(), config, data, strategy)
    timed = search.objective == "seconds_to_target"
    with contextlib.redirect_stdout(io.StringIO()):  # KerasTuner prints what it reloads
        return ReplicaTuner(
            _oracle(search),
            hypermodel,
            strategy=strategy,
            seed=config.seed,
            target_accuracy=config.target_accuracy if timed else None,
            patience=config.patience,
            time_budget=config.time_budget,
            make_callbacks=trial_trackers(
                search,
                folder,
                replicas=strategy.num_replicas_in_sync,
                own_batch=getattr(hypermodel, "own_batch", None),
            ),
            announce=announce,
            console=console,
            executions_per_trial=search.executions_per_trial,
            directory=str(folder.path),
            project_name=folder.trials.name,
        )


def _oracle(search: Search) -> "keras_tuner.Oracle":
    import keras_tuner

    from .search_oracles import make_oracle

    return make_oracle(
        search.tuner,
        objective=keras_tuner.Objective(search.objective, search.direction),
        max_trials=search.max_trials,
        max_epochs=search.config.epochs,
        min_epochs=least_epochs(search),
        factor=search.factor,
        seed=search.config.seed,
        max_failures=search.max_failures,
    )


def least_epochs(search: Search) -> int:
    """Return the minimum epochs per trial for Hyperband: one more than the longest warm-up."""
    longest = search.config.warmup_epochs
    if search.model is None:
        part = search.search_space().dimensions.get("warmup_epochs")
        if isinstance(part, Range):
            longest = part.most
        elif part is not None:
            longest = max(part.values)
    return int(longest) + 1


def _user_hypermodel(
    search: Search, folder: StudyFolder, strategy: "MirroredStrategy", role: Role
) -> "keras_tuner.HyperModel":
    import keras_tuner

    from ..training.user_model.compiled_model import check_input
    from ..training.user_model.functions import load_functions
    from .search_models import UserHyperModel

    functions = load_functions(search.model or "", search.data, needs_hp=True)
    # A chief trains nothing. All others report wrong data before the first trial.
    batch = search.config.batch_size * strategy.num_replicas_in_sync
    data = None if role.is_chief else functions.load_data(batch)
    if data is not None:
        given = search.config.batch_size
        functions.check_batch(data, None if given == TrainConfig.batch_size else given)
    hypermodel = UserHyperModel(
        functions.build,
        functions.load_data if functions.takes_batch and not role.is_chief else data,
        search.config,
        strategy,
    )
    if not role.is_worker:
        hp = keras_tuner.HyperParameters()
        with strategy.scope():
            model = hypermodel.build(hp)
            if data is not None:
                check_input(model, data.training)
                check_input(model, data.validation, what="validation data")
        _keep_space(hp, folder)
    return hypermodel


def _keep_space(hp: "keras_tuner.HyperParameters", folder: StudyFolder) -> None:
    """Save the hyperparameters of a user's model, or compare them with the saved ones."""
    space = {"space": hp.get_config()["space"]}
    before = folder.read("space.json")
    if before is not None and before != space:
        was, now = ({part["config"]["name"] for part in one["space"]} for one in (before, space))
        changed = ", ".join(sorted(was ^ now)) or "their ranges"
        raise UserError(
            f"the folder {folder.path} contains a search with other hyperparameters ({changed}):"
            " pass another --output"
        )
    folder.write("space.json", space)


def trial_trackers(
    search: Search, folder: StudyFolder, *, replicas: int, own_batch: int | None = None
) -> Callable[[str, int, Mapping[str, Any]], list[Any]] | None:
    """Make the `make_callbacks` of a `ReplicaTuner` that returns trackers.

    Args:
        search: The settings; if they request no tracker, the result is `None`.
        folder: The folder of the search. A run's files are in `tracking-<execution>` in its trial's
            folder; those of an interrupted run are removed unless it continues from a checkpoint.
        replicas: Number of replicas per trial.
        own_batch: The samples per step that a user's data decide themselves; `None` for other data.
    """
    config = search.config
    if not config.trackers:
        return None
    own = {} if own_batch is None else {"global_batch": own_batch}

    def trackers(trial_id: str, execution: int, values: Mapping[str, Any]) -> list[Any]:
        from .search_checkpoints import checkpoint_folder

        trial = folder.trials / f"trial_{trial_id}"
        run = trial / f"tracking-{execution}"
        if not checkpoint_files(checkpoint_folder(trial, execution)):
            shutil.rmtree(run, ignore_errors=True)
        name = f"{folder.path.name}-{trial_id}"
        drawn = dict(values) if search.model is not None else search.search_space().decode(values)
        return list(
            tracking(
                *config.trackers,
                folder=run,
                config=_shown_settings(search, drawn, replicas=replicas) | own,
                group=folder.path.name,
                run_name=f"{name}-{execution}" if search.executions_per_trial > 1 else name,
                every_batches=config.track_batches,
                log_model=config.log_model,
                hyperparameters=drawn,
                objective=(search.objective, search.direction),
                verbose=0,
            )
        )

    return trackers


def _shown_settings(search: Search, drawn: Mapping[str, Any], *, replicas: int) -> dict[str, Any]:
    """Return a trial's settings for a dashboard; for a user's model its hyperparameters."""
    if search.model is not None:
        batch = drawn.get("batch_size", search.config.batch_size)
        return {**drawn, "replicas": replicas, "global_batch": replicas * batch}
    config = trial_config(search.config, drawn)
    plan = make_plan(config, replicas=replicas)
    return {
        **config.shareable(),
        "learning_rate": plan.learning_rate,
        "replicas": replicas,
        "global_batch": plan.global_batch,
    }


def main() -> None:
    """In a process of a chief or worker: run trials as KerasTuner's environment variables say."""
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    role, folder = read_role(os.environ), StudyFolder(sys.argv[1])
    search = read_search(folder)

    def announce(line: str) -> None:
        if not role.is_chief:
            print(f"{role.tuner_id}: {line}", flush=True)

    try:
        run_trials(search, folder, role, announce=announce)
    except UserError as error:
        # Not the trial's fault: another process would end as this one.
        running_marker(folder.trials, role.tuner_id or "").unlink(missing_ok=True)
        sys.exit(f"{role.tuner_id}: {error}")
    except KeyboardInterrupt as error:  # the trial is saved
        sys.exit(128 + signal_of(error))


if __name__ == "__main__":
    main()
