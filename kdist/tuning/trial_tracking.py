"""Trackers of a search: one run per execution of a trial, all in one group."""

import shutil
from collections.abc import Callable, Mapping
from typing import Any

from ..tracking.factory import tracking
from ..training.config import make_plan
from .objective import find_objective
from .search import Search
from .search_folder import SearchFolder
from .trial_checkpoint import is_resumed
from .trial_config import trial_config


def trial_trackers(
    search: Search, folder: SearchFolder, *, replicas: int, own_batch: int | None = None
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
