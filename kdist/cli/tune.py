"""`kdist tune`: options of the search, and of its trials."""

import dataclasses
import os
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError
from ..fields import field_names
from ..launch.launch_options import MOST_WORKERS
from ..launch.shares import divide, visible_gpus
from ..signals import signal_of
from ..study.folder import StudyFolder
from ..study.search_settings import IDLE, Search, check_given
from ..training.config import TrainConfig
from ..training.recipes import read_settings
from ..training.settings import FOLDERS, Checkpoints, Output, OwnModel
from ..versions import require
from .options import ConfigFile, given, options_of, parse_integer, read_files, takes

_PLAIN = {"model", "space", "config"}
# What a trial does not heed; a search has a folder of its own, and saves its models itself.
_NOT_TAKEN = (
    {*IDLE, "save_model"}
    | (FOLDERS & field_names(Output))
    | field_names(Checkpoints, OwnModel)  # a search has a model of its own
)


@takes(
    search=options_of(Search, without=_PLAIN), settings=options_of(TrainConfig, without=_NOT_TAKEN)
)
def tune(
    model: Annotated[
        str | None,
        Parameter(help="FILE.py:FUNCTION, your own build(hp); by default the one of --network."),
    ] = None,
    /,
    *,
    space: Annotated[
        str | None, Parameter(help="Search space, TOML or JSON; by default one for --network.")
    ] = None,
    workers: Annotated[
        int | None,
        Parameter(
            help="Trials at a time, each on its share of the GPUs or cores: sets --per-trial and"
            " --devices.",
            converter=parse_integer,
            validator=Number(gte=1, lte=MOST_WORKERS),
        ),
    ] = None,
    config: ConfigFile = None,
    search: Any = None,
    settings: Any = None,
) -> int:
    """Search for good hyperparameters; the same command again resumes an interrupted search."""
    trial = TrainConfig.from_dict(read_files(None, config) | given(settings))
    options = given(search)
    if workers is not None:
        trial, options = _at_once(workers, trial, options)
    asked = Search(
        model=model,
        space=None if space is None else read_settings(space),
        config=trial,
        **options,
    )
    check_given(asked, given(settings))
    require("report")
    from ..study.search_run import tune as run

    try:
        run(asked)
    except KeyboardInterrupt as error:
        then = "resumes the search" if StudyFolder(asked.output).has_study else "begins anew"
        print(f"Interrupted: the same command {then}.")
        return 128 + signal_of(error)
    return 0


def _at_once(
    workers: int, trial: TrainConfig, options: dict[str, Any]
) -> tuple[TrainConfig, dict[str, Any]]:
    """The settings of trials and search with so many trials at once."""
    twice = [name for name in ("per_trial", "devices") if name in options]
    if twice:
        name = twice[0].replace("_", "-")
        raise UserError(
            f"received --workers {workers} and --{name} {options[twice[0]]}: pass --workers, or"
            " --per-trial and --devices"
        )
    if workers == 1:
        return trial, options
    gpus, each = visible_gpus(os.environ), trial.replicas or 1
    if trial.replicas is None and gpus:
        each = len(divide(workers=workers, gpus=gpus, cores=())[0].gpus or ())
    if gpus and each * workers > len(gpus):
        raise UserError(
            f"received {workers} workers with {each} replicas each, but {len(gpus)} GPUs are"
            " visible: lower --workers or --replicas"
        )
    more = {"per_trial": each, "devices": each * workers}
    return dataclasses.replace(trial, replicas=None), options | more
