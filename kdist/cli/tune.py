"""`kdist tune`: options of the search, and of its trials."""

from typing import Annotated, Any

from cyclopts import Parameter

from ..fields import field_names
from ..signals import signal_of
from ..study.folder import StudyFolder
from ..study.search_settings import UNUSED, Search, check_given
from ..training.config import TrainConfig
from ..training.recipes import read_settings
from ..training.settings import FOLDERS, Checkpoints, Output, OwnModel
from ..versions import require
from .options import ConfigFile, given, options_of, read_files, takes

_PLAIN = {"model", "space", "config"}
# What a trial does not heed; a search has a folder of its own, and saves its models itself.
_NOT_TAKEN = (
    {*UNUSED, "save_model"}
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
    config: ConfigFile = None,
    search: Any = None,
    settings: Any = None,
) -> int:
    """Search for good hyperparameters; the same command again resumes an interrupted search."""
    asked = Search(
        model=model,
        space=None if space is None else read_settings(space),
        config=TrainConfig.from_dict(read_files(None, config) | given(settings)),
        **given(search),
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
