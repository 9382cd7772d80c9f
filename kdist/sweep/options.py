"""What the options of `kdist sweep` mean: lists, and those that are `kdist train`'s."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ..cli_options import was_given
from ..config import TrainConfig
from ..errors import UserError
from ..recipes import read_recipe, read_settings


def parse_whole_numbers(option: str, text: str) -> list[int]:
    """The numbers of a list such as `8,16,32`, each once, in order of size.

    Raises:
        UserError: A part is no integer of at least 1, or comes twice.
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch("0*[1-9][0-9]{0,8}", part)]
    if wrong:
        raise UserError(
            f"{option} got {wrong[0]!r} in {text!r}: pass integers of at least 1 with commas"
            " between, such as 1,2,4"
        )
    return sorted(_once(option, [int(part) for part in parts]))


def parse_names(option: str, text: str, known: Sequence[str]) -> list[str]:
    """The names of a list such as `linear,sqrt`.

    Raises:
        UserError: A name is not among those known, or comes twice.
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if part not in known]
    if wrong:
        raise UserError(f"{option} takes {', '.join(known)}, received {wrong[0]!r}")
    return _once(option, parts)


def _once(option: str, values: list[Any]) -> list[Any]:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise UserError(f"{option} got {twice[0]} twice: pass every value once")
    return values


# A sweep's runs have folders of their own, and a fixed place for each file.
_NEVER = ("run_dir", "log_dir")


def train_settings(context: typer.Context, *, taken: Sequence[str]) -> dict[str, Any]:
    """The settings in what is left of the command line, read as options of `kdist train`.

    Args:
        context: Of a command of `kdist sweep` that takes unknown options.
        taken: Settings that the sweep itself decides.

    Returns:
        What was given, or is in a recipe or file that was given, by the names of `TrainConfig`.

    Raises:
        UserError: A setting is one that the sweep decides, or out of its range.
        typer.TyperException: `kdist train` has no such option.
    """
    command = context.find_root().command.commands["train"]  # type: ignore[attr-defined]
    with command.make_context("train", list(context.args), parent=context.parent) as parsed:
        given = {name: value for name, value in parsed.params.items() if was_given(parsed, name)}
    recipe, config = given.pop("recipe", None), given.pop("config", None)
    both = [name for name in given if name in (*taken, *_NEVER)]
    if both:
        option = "--" + both[0].replace("_", "-")
        raise UserError(f"{option} is not for a sweep, which decides it: see kdist sweep --help")
    settings = {} if recipe is None else read_recipe(recipe)
    settings |= {} if config is None else read_settings(config)
    settings = {k: v for k, v in settings.items() if k not in (*taken, *_NEVER)} | given
    TrainConfig.from_dict(settings)  # refuses what no run would take
    return settings


def with_own(context: typer.Context, settings: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Settings with those that the sweep's command has as options of its own.

    Args:
        context: Of the command.
        settings: As `train_settings` returned them.
        **values: Values of options, by the names of `TrainConfig`. One that is a default gives way
            to a recipe or file; one that is `None` is left out.
    """
    own = {n: v for n, v in values.items() if was_given(context, n) or n not in settings}
    return {**settings, **{name: value for name, value in own.items() if value is not None}}
