"""Files of users that are named like other modules."""

import importlib.util
import sys

import keras
import pytest
from kdist.user_model.functions import load_functions

NAMED_LIKE_ANOTHER = """
import random

import json
import keras

def build():
    return keras.Model

def data():
    return random.sample.__name__, __name__
"""


@pytest.mark.parametrize("name", ["keras", "json", "colorsys", "pip", "of my own"])
def test_a_file_may_be_named_like_a_module(tmp_path, monkeypatch, name):
    """Whether that is imported, built in, or installed; other code still imports what it means."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    own = f"{name}.py"
    (tmp_path / own).write_text(NAMED_LIKE_ANOTHER)
    before = sys.modules.get(name)
    functions = load_functions(f"{tmp_path / own}:build", "data")
    assert functions.build() is keras.Model
    drawn, module = functions.make_data()
    assert drawn == "sample"
    assert sys.modules[module].build is functions.build
    if name == "of my own":
        assert module == name
        return
    assert module != name
    assert sys.modules.get(name) is before
    assert importlib.util.find_spec(name).origin != str(tmp_path / own)


def test_two_files_of_one_name_are_two_modules(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    names = {}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twin.py").write_text(
            f"def build():\n    return '{folder}'\n\ndef data():\n    return build()\n"
        )
        names[folder] = f"{tmp_path / folder / 'twin.py'}"
    functions = load_functions(f"{names['one']}:build", f"{names['two']}:data")
    assert (functions.build(), functions.make_data()) == ("one", "two")
    modules = [sys.modules[one.__module__] for one in (functions.build, functions.make_data)]
    assert [one.__file__ for one in modules] == list(names.values())
