"""Options of the command line, made of the types of settings."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from cyclopts import Group, Parameter

from ..training.config import refuse_with_own_model
from ..training.fields import Field, Repeatable, fields_of
from ..training.recipes import read_recipe, read_settings, recipe_names
from .integers import parse_integer

ConfigFile = Annotated[
    str | None,
    Parameter(help="Settings file, TOML or JSON. Options on the command line override it."),
]
Recipe = Annotated[
    str | None,
    Parameter(help=f"Settings that come with kdist: {', '.join(recipe_names())}."),
]

OwnModelName = Annotated[
    str | None,
    Parameter(
        help="FILE.py:FUNCTION, your own build() that returns a compiled model; by default the"
        " one of --network."
    ),
]


def options_of(settings: type, *, without: Collection[str] = ()) -> Any:
    """Make a class of command-line options from a class of settings: one for each.

    Args:
        settings: A dataclass, such as `TrainConfig`.
        without: Settings that get no option.

    Returns:
        A dataclass for `Annotated[..., Parameter(name="*")]`; `given` reads an object of it.
    """
    fields = [field for field in fields_of(settings) if field.name not in without]
    places = {field.group: place for place, field in reversed(list(enumerate(fields)))}
    made = dataclasses.make_dataclass(
        f"{settings.__name__}Options",
        [
            (field.name, _option(field, places[field.group]), dataclasses.field(default=None))
            for field in fields
        ],
        kw_only=True,
        frozen=True,
    )
    made.__module__ = __name__  # cyclopts takes a class of the module `types` for no class
    return made


def _option(field: Field, place: int) -> Any:
    kind = list[str] if field.has(Repeatable) else field.kind
    shown = str(field.default)
    parameter = Parameter(
        help=field.help,
        group=Group(field.group, sort_key=place),
        converter=parse_integer if field.kind is int else None,
        negative=None if field.kind is bool else (),
        show_default=False if field.default is None else lambda _: shown,
    )
    return Annotated[kind | None, parameter]  # `None` is what is not given


def given(options: Any) -> dict[str, Any]:
    """The options that are on the command line, even with their defaults."""
    return {name: value for name, value in vars(options).items() if value is not None}


def read_files(recipe: str | None, config: str | None) -> dict[str, Any]:
    """The settings of a recipe and of a file, which wins.

    Raises:
        UserError: There is no such recipe, or the file cannot be read.
    """
    settings = {} if recipe is None else read_recipe(recipe)
    return settings if config is None else settings | read_settings(config)


def with_model(
    model: str | None, settings: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a file, with the model of the command line.

    Args:
        model: The user's own, or `None` for that of the file, if any.
        settings: What the files have.
        given: The options on the command line.

    Raises:
        UserError: An option is for --network, and the model is the user's.
    """
    chosen = {**settings} if model is None else {**settings, "model": model}
    refuse_with_own_model(chosen.get("model"), given)
    return chosen
