"""`load_tuner`, `tuner_of`: the KerasTuner tuner of a search, with the trials so far."""

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..tracking.factory import tracking
from ..training.config import TrainConfig, make_plan
from ..user_model.functions import explain_errors_of, files_of
from .folder import StudyFolder, locked
from .search_processes import Role, read_role
from .search_settings import Search, find_objective, read_search
from .search_space import Range
from .search_trials import trial_config
from .search_tuner import is_resumed

if TYPE_CHECKING:
    import keras_tuner
    from rich.console import Console

    from ..data import ImageData
    from ..distribute.mirrored_strategy import MirroredStrategy
    from .search_tuner import ReplicaTuner


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
    objective = find_objective(search.objective)
    own = {} if own_batch is None else {"global_batch": own_batch}

    def trackers(trial_id: str, execution: int, values: Mapping[str, Any]) -> list[Any]:
        trial = folder.trials / f"trial_{trial_id}"
        run = trial / f"tracking-{execution}"
        if not is_resumed(trial, execution):
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
                profile_batches=config.profile_batches,
                hyperparameters=drawn,
                objective=(objective.metric, objective.direction),
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


# TensorFlow and Keras are imported inside the functions, as in `kdist.training.run`.


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
    console: "Console | None" = None,
    trains: bool = True,
) -> "ReplicaTuner":
    """Make the tuner of a search, with the trials in its folder.

    Args:
        search: The settings.
        folder: The folder of the search.
        role: The role of this process.
        announce: Called with lines about the progress.
        console: A terminal for progress bars.
        trains: Whether it will run trials, whose images have to be those of the trials so far.

    Raises:
        UserError: Data or model are invalid, the user's code raises an exception, or the folder
            has a different search space.
    """
    if search.model is None:
        # Before TensorFlow is imported: it takes seconds, and the data may be missing.
        data = _load_images(search.config, folder, announce, trains=trains and not role.is_chief)
        return _load(search, folder, role, announce, console, data)
    with explain_errors_of(*files_of(search.model, search.data)):
        return _load(search, folder, role, announce, console, None)


def _load_images(
    config: TrainConfig, folder: StudyFolder, announce: Callable[[str], None], *, trains: bool
) -> "ImageData":
    """Load the images of the trials so far; a file says which the first process has found."""
    from ..training.images import describe_images, load_data, load_same_images

    if not trains:
        return load_data(config, announce=announce)
    name = f"{folder.trials.name}/data.json"
    folder.trials.mkdir(parents=True, exist_ok=True)
    # Processes that begin at one time load one after the other.
    with locked(folder.trials / "data.lock", wait=True):
        earlier = folder.read(name)
        data = load_same_images(config, earlier or {}, announce=announce)
        if earlier is None:
            folder.write(name, describe_images(data))
    return data


def _load(
    search: Search,
    folder: StudyFolder,
    role: Role,
    announce: Callable[[str], None],
    console: "Console | None",
    data: "ImageData | None",
) -> "ReplicaTuner":
    from ..distribute.mirrored_strategy import MirroredStrategy
    from .search_tuner import ReplicaTuner

    config = search.config
    strategy = MirroredStrategy(replicas=search.replicas)
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

    objective = find_objective(search.objective)
    return make_oracle(
        search.tuner,
        objective=keras_tuner.Objective(objective.metric, objective.direction),
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

    from ..user_model.compiled_model import check_input
    from ..user_model.functions import load_functions
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
