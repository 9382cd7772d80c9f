"""The machine with its devices, which another process lists."""

import subprocess

import pytest
from kdist.errors import UserError
from kdist.performance import machine as machine_module
from kdist.performance.machine import machine, on_cpu


def listing(monkeypatch, *, code=0, stdout="", stderr=""):
    def run(command, **_):
        assert command[1:] == ["-m", "kdist", "devices"]
        return subprocess.CompletedProcess(command, code, stdout, stderr)

    monkeypatch.setattr(machine_module.subprocess, "run", run)


def test_devices_are_lines_of_another_process(monkeypatch):
    listing(monkeypatch, stdout="GPU:0  NVIDIA H100\nGPU:1  NVIDIA H100\n")
    about = machine()
    assert about["devices"] == ["GPU:0 NVIDIA H100", "GPU:1 NVIDIA H100"]
    assert about["cores"] >= 1
    assert not on_cpu(about)


def test_known_devices_are_not_listed_again(monkeypatch):
    listing(monkeypatch, code=1)
    about = machine(["CPU:0 Xeon"])
    assert about["devices"] == ["CPU:0 Xeon"]
    assert on_cpu(about)


@pytest.mark.parametrize(
    ("ended", "last"),
    [
        ({"code": 1, "stdout": "CPU:0 x", "stderr": "first\nlast\n"}, "last"),
        ({}, "it printed no error"),
    ],
)
def test_devices_that_cannot_be_listed_are_an_error(monkeypatch, ended, last):
    listing(monkeypatch, **ended)
    with pytest.raises(UserError, match=f"`kdist devices` fails, and so would every run: {last}$"):
        machine()
