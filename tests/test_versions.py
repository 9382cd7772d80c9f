"""Errors of missing packages."""

import importlib.util
import tomllib
from pathlib import Path

import pytest
from kdist.errors import UserError
from kdist.versions import EXTRAS, require_extra

ROOT = Path(__file__).parents[1]


def test_a_missing_package_is_named_with_the_extra_that_installs_it(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ray" else real(name)
    )
    require_extra("tune")
    words = r"the module ray of the extra .*pip install 'kdist\[ray\]'"
    with pytest.raises(UserError, match=words):
        require_extra("ray")


def test_every_extra_that_is_asked_for_can_be_installed():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) <= set(declared["optional-dependencies"])
