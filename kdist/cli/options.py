"""Options of the command line, created from the fields of settings."""

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter

from ..fields import Field, fields_of
from ..training.recipes import read_recipe, read_settings_file, recipe_names

if TYPE_CHECKING:
    from cyclopts import Token

_Command = TypeVar("_Command", bound=Callable[..., Any])


def parse_integer(_: Any, tokens: "Sequence[Token]") -> int:
    """Convert the value of an option to an integer; cyclopts would round 1.5 to 2.

    Raises:
        ValueError: The value is not an integer.
    """
    (token,) = tokens
    text = re.sub(r"\.0*$", "", token.value)  # 30.0 is an integer, too
    try:
        return int(text, 0 if re.match(r"[+-]?0[xob]", text, re.I) else 10)
    except ValueError:  # also for thousands of digits
        raise ValueError(f"expected an integer, received {token.value!r}") from None


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
        help="FILE.py:FUNCTION; the function returns your own compiled model. By default kdist's"
        " WideResNet."
    ),
]


def make_options_class(
    settings: type, *, without: Collection[str] = (), group: str | None = None
) -> Any:
    """Create a class of command-line options from a class of settings: an option per setting.

    Args:
        settings: A dataclass, such as `TrainConfig`.
        without: Settings without an option.
        group: Title of a single group for all options, the first in the help text. By default, an
            option has the group of its setting.

    Returns:
        A dataclass for `add_options`; `given_options` reads its objects.
    """
    fields = [field for field in fields_of(settings) if field.name not in without]
    places = {field.group: place for place, field in reversed(list(enumerate(fields)))}
    options_class = dataclasses.make_dataclass(
        f"{settings.__name__}Options",
        [
            (
                field.name,
                _make_option(field, group or field.group, -1 if group else places[field.group]),
                dataclasses.field(default=None),
            )
            for field in fields
        ],
        kw_only=True,
        frozen=True,
    )
    options_class.__module__ = __name__  # cyclopts does not accept a class of the module `types`
    return options_class


def add_options(**options: Any) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options to a command.

    Args:
        **options: Classes from `make_options_class`, by the name of the parameter.
    """

    def decorate(command: _Command) -> _Command:
        function: Any = command
        for name, options_class in options.items():
            function.__annotations__[name] = Annotated[options_class, Parameter(name="*")]
            function.__kwdefaults__[name] = options_class()
        return command

    return decorate


def _make_option(field: Field, group: str, place: int) -> Any:
    kind = str if field.is_list else field.kind
    shown = field.default_text
    parameter = Parameter(
        help=field.help,
        group=Group(group, sort_key=place),
        converter=parse_integer if kind is int else None,
        negative=None if kind is bool else (),
        show_default=(lambda _: shown) if shown else False,
    )
    return Annotated[kind | None, parameter]  # `None` marks an absent option


def given_options(options: Any) -> dict[str, Any]:
    """Return the options on the command line, including options that equal their defaults."""
    return {name: value for name, value in vars(options).items() if value is not None}


def read_settings(
    recipe: str | None, config: str | None, options: Any, *, model: str | None = None
) -> dict[str, Any]:
    """Return the settings of a recipe, a file and options; each source overrides the earlier ones.

    Args:
        recipe: Name of a recipe, or `None`.
        config: The file, or `None`.
        options: Options on the command line.
        model: The user's own model; `None` keeps the model of the file, if any.

    Raises:
        UserError: The recipe does not exist, or the file cannot be read.
    """
    settings = {} if recipe is None else read_recipe(recipe)
    if config is not None:
        settings |= read_settings_file(config)
    model_setting = {} if model is None else {"model": model}
    return settings | given_options(options) | model_setting
