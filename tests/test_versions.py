"""Errors of missing packages."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
from kdist.errors import UserError
from kdist.versions import EXTRAS, require

ROOT = Path(__file__).parents[1]


def test_a_missing_package_is_named_with_the_extra_that_installs_it(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb_workspaces" else real(name)
    )
    require("tune")
    words = r"this needs wandb_workspaces, .*pip install 'kdist\[dashboard\]'"
    with pytest.raises(UserError, match=words):
        require("dashboard")


def test_every_extra_that_is_asked_for_can_be_installed():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) <= set(declared["optional-dependencies"])
