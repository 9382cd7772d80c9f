"""What the machine is, as other processes and files tell, and oneDNN's kernels."""

import os
import platform
import subprocess
import sys

import pytest
from kdist.errors import UserError
from kdist.processes import child
from kdist.strategies.hardware import (
    ONEDNN_VARIABLE,
    cpu_flags,
    describe_machine,
    device_names,
    enable_onednn,
    is_on_cpu,
)

AVX2 = "processor : 0\nflags\t\t: fpu sse avx avx2 f16c fma\n"


def test_every_device_has_a_name():
    names = device_names(("CPU:0", "CPU:1"))
    assert names[0] == names[1]
    assert names[0]


def test_without_proc_the_architecture_is_told(monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: "nothing of use")
    assert device_names(("CPU:0",)) == [platform.machine()]


def listing(monkeypatch, *, code=0, stdout="", stderr=""):
    def run(command, **_):
        assert command[1:] == ["-m", "kdist", "devices"]
        return child.CompletedChild(exit_code=code, output=stdout, errors=stderr)

    monkeypatch.setattr(child, "run_child", run)


@pytest.mark.parametrize("kind", ["GPU", "CPU"])
def test_devices_are_lines_of_another_process(monkeypatch, kind):
    listing(monkeypatch, stdout=f"{kind}:0  A name\n{kind}:1  A name\n")
    about = describe_machine()
    assert about["devices"] == [f"{kind}:0 A name", f"{kind}:1 A name"]
    assert about["cores"] >= 1
    assert is_on_cpu(about) == (kind == "CPU")


@pytest.mark.parametrize(
    ("ended", "last"),
    [
        ({"code": 1, "stdout": "CPU:0 x", "stderr": "first\nlast\n"}, "last"),
        ({}, "it printed no error"),
    ],
)
def test_devices_that_cannot_be_listed_are_an_error(monkeypatch, ended, last):
    listing(monkeypatch, **ended)
    with pytest.raises(
        UserError, match=rf"TensorFlow cannot start here \(`kdist devices`\): {last}$"
    ):
        describe_machine()


@pytest.fixture
def undecided(monkeypatch):
    monkeypatch.delenv(ONEDNN_VARIABLE, raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow")


def enabled(tmp_path, text):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    enable_onednn(path)
    return os.environ.get(ONEDNN_VARIABLE)


@pytest.mark.parametrize(
    ("text", "value"),
    [(AVX2, "1"), ("flags : fpu sse avx", None), ("Features : fp asimd", None), ("", None)],
)
def test_on_where_the_cpu_has_the_instructions(undecided, tmp_path, text, value):
    assert enabled(tmp_path, text) == value
    enable_onednn(tmp_path / "missing")
    assert os.environ.get(ONEDNN_VARIABLE) == value


def test_what_the_user_chose_stays(undecided, tmp_path, monkeypatch):
    monkeypatch.setenv(ONEDNN_VARIABLE, "0")
    assert enabled(tmp_path, AVX2) == "0"


def test_too_late_once_tensorflow_is_imported(tmp_path, monkeypatch):
    monkeypatch.delenv(ONEDNN_VARIABLE, raising=False)
    assert enabled(tmp_path, AVX2) is None


PREPARE = f"""
import kdist, os, sys
before = dict(os.environ), list(sys.meta_path)
import kdist.strategies.prepare_tensorflow
assert before == (dict(os.environ), sys.meta_path)
kdist.prepare_tensorflow()
print(os.environ.get({ONEDNN_VARIABLE!r}) == "1", os.environ["TF_CPP_MIN_LOG_LEVEL"])
sys.modules["tensorflow"] = None
try:
    kdist.prepare_tensorflow()
except kdist.errors.UserError as error:
    print(str(error)[:33])
"""


def test_a_call_prepares_tensorflow_and_the_import_of_kdist_does_not():
    names = (ONEDNN_VARIABLE, "TF_CPP_MIN_LOG_LEVEL")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    done = subprocess.run(
        [sys.executable, "-c", PREPARE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        f"{cpu_flags() >= {'avx2', 'fma'}} 2",
        "TensorFlow is imported already, a",
    ]
