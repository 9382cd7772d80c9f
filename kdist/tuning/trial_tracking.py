"""The trackers of a search: a run for each execution of a trial, all of one group."""

import shutil
from collections.abc import Callable, Mapping
from typing import Any

from ..scaling import scale_learning_rate
from ..tracking.trackers import tracking
from .objective import find_objective
from .search import Search
from .search_folder import SearchFolder
from .trial_config import trial_config


def trial_trackers(
    search: Search, folder: SearchFolder, *, replicas: int
) -> Callable[[str, int, Mapping[str, Any]], list[Any]] | None:
    """From a trial's name, the execution from 0 and its values to its trackers.

    Args:
        search: The settings; `None` is returned where they ask for no tracker.
        folder: Of the search. A run's files are in `tracking-<execution>` of its trial's folder;
            what a run that was cut short left there is removed.
        replicas: Of a trial.
    """
    config = search.config
    if not config.trackers:
        return None
    objective = find_objective(search.objective)

    def trackers(trial_id: str, execution: int, values: Mapping[str, Any]) -> list[Any]:
        run = folder.trials / f"trial_{trial_id}" / f"tracking-{execution}"
        shutil.rmtree(run, ignore_errors=True)
        name = f"{folder.path.name}-{trial_id}"
        drawn: dict[str, Any] = dict(values)
        settings = dict(drawn)
        batch = drawn.get("batch_size", config.batch_size)
        if search.model is None:
            drawn = search.search_space().decode(values)
            chosen = trial_config(config, drawn)
            batch = chosen.batch_size
            settings = chosen.to_dict()
            settings["learning_rate"] = scale_learning_rate(
                chosen.base_lr,
                replicas=replicas,
                rule=chosen.lr_rule,
                optimizer=chosen.optimizer,
            )
        settings |= {"replicas": replicas, "global_batch": replicas * batch}
        return list(
            tracking(
                *config.trackers,
                folder=run,
                config=settings,
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
