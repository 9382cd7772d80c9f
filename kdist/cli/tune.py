"""`kdist tune`: options of the search, and of its trials."""

from typing import Annotated, Any

from cyclopts import Parameter

from ..fields import field_names
from ..study.search_settings import Search, refuse_tuned
from ..training.config import TrainConfig
from ..training.recipes import read_settings_file
from ..training.settings import FOLDERS, Checkpoints, Output, OwnModel
from .options import ConfigFile, add_options, given_options, make_options_class, read_settings
from .small_commands import end_study

# Settings without an option: a search sets validation, files and folders of its trials itself.
_SET_BY_SEARCH = (
    {"validate", "save_model"}
    | (FOLDERS & field_names(Output))
    | field_names(Checkpoints, OwnModel)
)


@add_options(
    search=make_options_class(Search, without={"space", "config"}),
    settings=make_options_class(TrainConfig, without=_SET_BY_SEARCH),
)
def tune(
    *,
    space: Annotated[
        str | None, Parameter(help="Search space, TOML or JSON; by default kdist's own.")
    ] = None,
    config: ConfigFile = None,
    search: Any = None,
    settings: Any = None,
) -> int:
    """Search for good hyperparameters; the same command again resumes an interrupted search."""
    complete_search = Search(
        space=None if space is None else read_settings_file(space),
        config=TrainConfig.from_dict(read_settings(None, config, settings)),
        **given_options(search),
    )
    refuse_tuned(complete_search, given_options(settings))
    from ..study.search_run import tune as run

    return end_study(run(complete_search))
