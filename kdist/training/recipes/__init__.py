"""Settings files that come with kdist, and how a settings file is read."""

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import UserError


def recipe_names() -> tuple[str, ...]:
    """The names for `kdist train --recipe`."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def read_recipe(name: str) -> dict[str, Any]:
    """The settings of a recipe.

    Raises:
        UserError: There is none of this name.
    """
    if name not in recipe_names():
        raise UserError(f"recipe has to be one of {', '.join(recipe_names())}; received {name}")
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def read_settings(path: str) -> dict[str, Any]:
    """The settings of a file: TOML, or JSON such as the `config.json` of a run folder.

    Raises:
        UserError: It cannot be read, or is neither.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        settings = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the settings in {path}: {error}; pass a .toml or .json file of settings,"
            " such as the config.json of a run folder"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(
            f"{path} holds a {type(settings).__name__}, expected names and values of settings"
        )
    return settings
