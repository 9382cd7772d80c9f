"""Settings files that come with kdist, and reading of settings files."""

import json
import tomllib
from importlib import resources
from typing import Any

from ...arguments import path_text
from ...errors import UserError, message_without_path
from ...files import read_text


def recipe_names() -> tuple[str, ...]:
    """Return the names for `kdist train --recipe`."""
    files = resources.files(__name__).iterdir()
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    )


def read_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe.

    Raises:
        UserError: No recipe has this name.
    """
    if name not in recipe_names():
        raise UserError(f"recipe has to be one of {', '.join(recipe_names())}; received {name}")
    text = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def read_settings_file(path: str) -> dict[str, Any]:
    """Return the settings in a TOML or JSON file, such as the `config.json` of a run folder.

    Raises:
        UserError: The file cannot be read, or contains no table of settings.
    """
    path_text("the settings file", path)
    try:
        text = read_text(path)
        settings = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"cannot read the settings in {path}: {message_without_path(error)}; pass a .toml or"
            " .json file of settings, such as the config.json of a run folder"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(
            f"{path} contains a {type(settings).__name__}, expected a table of settings"
        )
    return settings
