"""`kdist train`: an option for each setting of a run."""

import os
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import TrainingError
from ..training.config import TrainConfig
from ..training.restart import restore_after_restart
from .options import (
    ConfigFile,
    OwnModelName,
    Recipe,
    add_options,
    make_options_class,
    read_settings,
)


@add_options(settings=make_options_class(TrainConfig, without={"model"}))
def train(
    model: OwnModelName = None,
    /,
    *,
    config: ConfigFile = None,
    recipe: Recipe = None,
    resume: Annotated[
        str | None,
        Parameter(
            help="Continue the run in this folder from its newest checkpoint, with its settings;"
            " --replicas may differ, and --epochs may be larger."
        ),
    ] = None,
    settings: Any = None,
) -> int:
    """Train a network on one of the data sets, or your own model on your own data."""
    chosen = read_settings(recipe, config, settings, model=model)
    given, resume = restore_after_restart(os.environ, chosen, resume)
    if resume is not None:
        from ..training.resume import load_config_to_resume

        run_config = load_config_to_resume(resume, given)
        if run_config is None:
            return 0
    else:
        run_config = TrainConfig.from_dict(given)
    from ..training import run

    result = run.train(run_config, resume=resume is not None)
    if result.diverged is not None:
        remedy = (
            f"lower --base-lr, which is {run_config.base_lr:g}, or raise --warmup-epochs, which is"
            f" {run_config.warmup_epochs:g}"
        )
        if run_config.model is not None:
            remedy = "lower the learning rate that your model is compiled with"
        raise TrainingError(f"{result.diverged}: {remedy}; no model is saved in {result.run_dir}")
    return 0 if result.signal is None else 128 + result.signal
