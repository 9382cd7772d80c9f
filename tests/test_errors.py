"""Lines of a user's program."""

import os
import sysconfig

import pytest
from kdist import errors
from kdist.errors import format_code_line


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A file of two lines below the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine" / "model.py"
    path.parent.mkdir()
    path.write_text("import tensorflow as tf\n    x = tf.sqrt(y)  \n")
    return path


def test_a_line_is_shown_with_its_place(model):
    assert format_code_line(str(model), 2) == "mine/model.py:2: x = tf.sqrt(y)"
    assert format_code_line("mine/model.py", 1) == "mine/model.py:1: import tensorflow as tf"
    assert format_code_line(str(model), 9) == "mine/model.py:9"


def test_a_file_elsewhere_keeps_its_path(model, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert format_code_line(str(model), 1).startswith(f"{model}:1: ")
    os.rmdir(tmp_path / "other")
    assert format_code_line(str(model), 1).startswith(f"{model}:1: ")


def test_the_script_of_a_command_is_not_of_the_user():
    assert not errors.is_of_user(f"{sysconfig.get_path('scripts')}/kdist")
