"""`tune`: a search, from its settings to its folder."""

import contextlib
import io
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..tracking.wandb_account import asked_mode
from .objective import find_objective
from .report import report
from .results import read_trials
from .search import Search
from .search_folder import SearchFolder
from .space import Range
from .user_model import checked_data, load_functions, split_name

if TYPE_CHECKING:
    import keras_tuner

    from ..strategy import MirroredStrategy
    from .replica_tuner import ReplicaTuner

# TensorFlow and Keras are imported inside the functions, as in `kdist.training`.

_TUNER_ID = "KERASTUNER_TUNER_ID"
_ORACLE_IP = "KERASTUNER_ORACLE_IP"
_ORACLE_PORT = "KERASTUNER_ORACLE_PORT"


def tune(search: Search, *, announce: Callable[[str], None] = print) -> SearchFolder:
    """Run a search, go on with one that was cut short, or tell what a finished one came to.

    Where KerasTuner's environment variables are set (`KERASTUNER_TUNER_ID`,
    `KERASTUNER_ORACLE_IP`, `KERASTUNER_ORACLE_PORT`), this process is one chief or worker of a
    search on several machines, whose folder they share.

    Args:
        search: The settings.
        announce: Takes lines about the progress, and the table in the end.

    Returns:
        The folder: `best.json`, `trials.csv`, `trials.png`, and KerasTuner's files.

    Raises:
        UserError: Settings, data, model or folder that will not do, or too many failed trials in
            a row. Nothing is lost then: the same command goes on.
    """
    if search.model is not None:
        split_name(search.model)
    if "wandb" in search.config.trackers:
        asked_mode()  # a trial would fail by a wrong one
    folder = SearchFolder(search.output)
    if _ORACLE_IP in os.environ:
        missing = [name for name in (_ORACLE_PORT, _TUNER_ID) if name not in os.environ]
        if missing:
            raise UserError(
                f"received {_ORACLE_IP} without {' and '.join(missing)}: set it too, or unset the"
                " variable"
            )
        if search.per_trial is not None:
            raise UserError(
                f"received per_trial={search.per_trial} and {_ORACLE_IP}: --per-trial starts a"
                " chief and workers itself; unset the variable, or leave --per-trial out"
            )
        if "chief" not in os.environ.get(_TUNER_ID, ""):
            run_trials(search, folder, announce=announce)
            return folder
    resumed = folder.open(search)
    try:
        if folder.read("finished.json") != _finished(search):
            if resumed:
                known = read_trials(folder, search)
                ended = [trial for trial in known if trial.status in ("COMPLETED", "FAILED")]
                announce(f"Resuming {folder.path}: {len(ended)} trials have ended")
            if search.per_trial is not None:
                from .parallel import run_parallel

                run_parallel(search, folder, announce=announce)
            else:
                run_trials(search, folder, announce=announce)
        report(search, folder, announce=announce)
        _check_failures(search, folder)
        folder.write_json("finished.json", _finished(search))
    finally:
        folder.close()
    return folder


def _finished(search: Search) -> dict[str, Any]:
    return {"max_trials": search.max_trials}


def _check_failures(search: Search, folder: SearchFolder) -> None:
    trials = read_trials(folder, search)
    failed = [trial for trial in trials if trial.status == "FAILED"]
    # Of several at once, the trial that was begun last need not end last.
    last = read_trials(folder, search, order="end_order")[-search.max_failures :]
    stopped = len(last) == search.max_failures and all(trial in failed for trial in last)
    enough = search.max_trials is not None and len(trials) >= search.max_trials
    if failed and (len(failed) == len(trials) or (stopped and not enough)):
        raise UserError(
            f"the search has stopped, as {'all' if len(failed) == len(trials) else 'the last'}"
            f" {min(len(failed), search.max_failures)} trials failed, the last with"
            f" {failed[-1].failure!r}: see {folder.trials}/trial_{failed[-1].trial_id}/failure.txt;"
            " pass a larger --max-failures to go on, or another --output"
        )


def run_trials(
    search: Search, folder: SearchFolder, *, announce: Callable[[str], None] = print
) -> None:
    """Run the trials that are left, in this process; for a chief, hand them out."""
    tuner = load_tuner(search, folder, announce=announce)
    with warnings.catch_warnings():
        # A Gaussian process through few points says that it has not converged.
        warnings.filterwarnings("ignore", module="sklearn")
        tuner.search(verbose=0)


def load_tuner(
    search: Search, folder: SearchFolder, *, announce: Callable[[str], None] = print
) -> "ReplicaTuner":
    """The tuner of a search, with the trials that its folder holds.

    Args:
        search: The settings.
        folder: Of the search.
        announce: Takes lines about the progress.

    Returns:
        A `keras_tuner.Tuner`: `get_best_models`, `results_summary`, `get_best_hyperparameters`.

    Raises:
        UserError: Data or model that will not do, or another search space than the folder's.
    """
    from ..training import load_data

    data = load_data(search.config, announce=announce) if search.model is None else None
    import keras_tuner

    from ..strategy import MirroredStrategy
    from ..xla import check_xla
    from .oracles import make_oracle
    from .replica_tuner import ReplicaTuner
    from .trial_tracking import trial_trackers

    config = search.config
    strategy = MirroredStrategy(replicas=search.replicas)
    if config.xla:
        check_xla(strategy.devices)
    hypermodel: Any
    if data is not None:
        from .hypermodel import WideResNetHyperModel

        hypermodel = WideResNetHyperModel(search.search_space(), config, data, strategy)
    else:
        hypermodel = _user_hypermodel(search, folder, strategy)
    objective = find_objective(search.objective)
    timed = search.objective == "seconds_to_target"
    oracle = make_oracle(
        search.tuner,
        objective=keras_tuner.Objective(objective.metric, objective.direction),
        max_trials=search.max_trials,
        max_epochs=config.epochs,
        min_epochs=least_epochs(search),
        factor=search.factor,
        seed=config.seed,
        max_failures=search.max_failures,
    )
    with contextlib.redirect_stdout(io.StringIO()):  # KerasTuner says what it reloads
        return ReplicaTuner(
            oracle,
            hypermodel,
            strategy=strategy,
            seed=config.seed,
            target_accuracy=config.target_accuracy if timed else None,
            patience=config.patience,
            time_budget=config.time_budget,
            make_callbacks=trial_trackers(search, folder, replicas=strategy.num_replicas_in_sync),
            announce=announce,
            executions_per_trial=search.executions_per_trial,
            directory=str(folder.path),
            project_name=folder.trials.name,
        )


def tuner_of(path: str) -> "ReplicaTuner":
    """The tuner of the search in a folder, as `load_tuner` gives it.

    Args:
        path: What `kdist tune` had as its `--output`.

    Raises:
        UserError: There is no search in it.

    Example:
        ```python
        tuner = kdist.tuning.tuner_of("runs/tune")
        tuner.results_summary()
        model = tuner.get_best_models()[0]
        ```
    """
    folder = SearchFolder(path)
    settings = folder.read("search.json")
    if settings is None:
        raise UserError(f"there is no search in {path}: pass the --output of kdist tune")
    return load_tuner(Search.from_dict(settings), folder)


def least_epochs(search: Search) -> int:
    """Epochs that Hyperband grants at least: one more than the longest warm-up is long."""
    longest = search.config.warmup_epochs
    if search.model is None:
        part = search.search_space().dimensions.get("warmup_epochs")
        if isinstance(part, Range):
            longest = part.most
        elif part is not None:
            longest = max(part.values)
    return int(longest) + 1


def _user_hypermodel(
    search: Search, folder: SearchFolder, strategy: "MirroredStrategy"
) -> "keras_tuner.HyperModel":
    import keras_tuner

    from .user_hypermodel import UserHyperModel

    build, make_data = load_functions(search.model or "", search.data)
    distributed, chief = _ORACLE_IP in os.environ, "chief" in os.environ.get(_TUNER_ID, "")
    # A chief trains nothing. Else wrong data are told before the first trial.
    data = None if distributed and chief else checked_data(make_data())
    hypermodel = UserHyperModel(build, data, search.config, strategy)
    if distributed and not chief:
        return hypermodel
    hp = keras_tuner.HyperParameters()
    with strategy.scope():
        hypermodel.build(hp)
    space = {"space": hp.get_config()["space"]}
    before = folder.read("space.json")
    if before is not None and before != space:
        was, now = ({part["config"]["name"] for part in one["space"]} for one in (before, space))
        changed = ", ".join(sorted(was ^ now)) or "their ranges"
        raise UserError(
            f"the folder {folder.path} holds a search of other hyperparameters ({changed}): pass"
            " another --output"
        )
    folder.write_json("space.json", space)
    return hypermodel
