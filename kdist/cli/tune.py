"""`kdist tune`: parses and calls, no logic."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..signals import signal_of
from ..training.config import TrainConfig
from ..training.fields import field_names
from ..training.recipes import read_settings
from ..training.settings import FOLDERS, Checkpoints, Output, OwnModel
from ..tuning.search import IDLE, Search, check_given
from .options import ConfigFile, given, options_of, read_files

_PLAIN = {"model", "space", "config"}
# What a trial does not heed; a search has a folder of its own, and saves its models itself.
_NOT_TAKEN = (
    {*IDLE, "save_model"}
    | (FOLDERS & field_names(Output))
    | field_names(Checkpoints, OwnModel)  # a search has a model of its own
)

_SEARCH_OPTIONS = options_of(Search, without=_PLAIN)
_TRIAL_OPTIONS = options_of(TrainConfig, without=_NOT_TAKEN)

if TYPE_CHECKING:
    from typing import Any as SearchOptions
    from typing import Any as TrialOptions
else:
    SearchOptions, TrialOptions = _SEARCH_OPTIONS, _TRIAL_OPTIONS

_SEARCH = _SEARCH_OPTIONS()
_TRIAL = _TRIAL_OPTIONS()


def tune(
    model: Annotated[
        str | None,
        Parameter(help="FILE.py:FUNCTION with a build(hp) of yours; by default that of --network."),
    ] = None,
    /,
    *,
    space: Annotated[
        str | None, Parameter(help="Search space, TOML or JSON; by default one for --network.")
    ] = None,
    config: ConfigFile = None,
    search: Annotated[SearchOptions, Parameter(name="*")] = _SEARCH,
    settings: Annotated[TrialOptions, Parameter(name="*")] = _TRIAL,
) -> int:
    """Search for good hyperparameters; the same command again resumes an interrupted search."""
    asked = Search(
        model=model,
        space=None if space is None else read_settings(space),
        config=TrainConfig.from_dict(read_files(None, config) | given(settings)),
        **given(search),
    )
    check_given(asked, given(settings))
    from ..tuning.run import tune as run

    try:
        run(asked)
    except KeyboardInterrupt as error:
        print("Interrupted: the same command resumes the search.")
        return 128 + signal_of(error)
    return 0
