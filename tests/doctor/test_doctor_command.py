"""The screen, its JSON, a process that crashes or hangs, and the command on this machine."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kdist.tools.doctor.examine import check_tensorflow
from kdist.tools.doctor.finding import Finding, as_json, print_findings
from rich.console import Console


def test_screen():
    file = io.StringIO()
    findings = [Finding("one", "good", "works"), Finding("two", "broken", "in [x]", "fix [it]")]
    print_findings(findings, Console(file=file))
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "good    one  works",
        "broken  two  in [x]",
        "             → fix [it]",
        "",
        "1 good, 0 slow, 1 broken, 0 absent",
    ]


@pytest.mark.parametrize(("home", "text"), [("/home/ada", "~/x/y"), ("/", "/home/ada/x/y")])
def test_json_has_no_home_folder(home, text, monkeypatch):
    monkeypatch.setenv("HOME", home)
    report = json.loads(as_json([Finding("one", "broken", "/home/ada/x/y", "in /home/ada/x/y")]))
    assert report["findings"] == [
        {"name": "one", "state": "broken", "text": text, "remedy": f"in {text}"}
    ]


PROGRAM = """
import os, signal, sys
from kdist.launch.child import answer, orders

answer(one={"name": "one", "state": "good", "text": "works", "remedy": ""})
print("a word\\n\\nthe last line", file=sys.stderr, flush=True)
end = orders()["end"]
signal.pause() if end == "hang" else os.kill(os.getpid(), signal.SIGILL)
"""


def test_a_tensorflow_that_crashes_or_hangs():
    program = [sys.executable, "-c", PROGRAM]
    first, crash = check_tensorflow({"end": "crash"}, program=program)
    assert first == Finding("one", "good", "works")
    assert (crash.name, crash.state) == ("TensorFlow", "broken")
    assert crash.text == "its process ended with signal SIGILL: a word: the last line"
    (hang,) = check_tensorflow({"end": "hang"}, program=program, seconds=0.5)
    assert (hang.state, "not done after 0.5 seconds" in hang.text) == ("broken", True)


def doctor(folder, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "kdist", "doctor", "--json", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)["findings"]
    return done.returncode, {one["name"]: one for one in report}, done.stdout


def test_on_this_machine(tmp_path):
    code, found, text = doctor(tmp_path, "--replicas=2", CUDA_VISIBLE_DEVICES="-1")
    assert code == int(any(one["state"] == "broken" for one in found.values()))
    for name in ("Python", "packages", "TensorFlow", "all-reduce"):
        assert found[name]["state"] == "good", found[name]
    assert "64 MB over 2 logical CPUs" in found["all-reduce"]["text"]
    assert len(str(Path.home())) == 1 or str(Path.home()) not in text
    assert list(tmp_path.iterdir()) == []


def test_with_a_tensorflow_that_cannot_be_imported(tmp_path):
    broken = tmp_path / "broken" / "tensorflow"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libthing.so: undefined symbol')\n")
    path = os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")])
    code, found, _ = doctor(tmp_path, PYTHONPATH=path)
    assert code == 1
    assert found["TensorFlow"]["state"] == "broken"
    assert "undefined symbol" in found["TensorFlow"]["text"]
    assert "all-reduce" not in found
    assert found["packages"]["state"] == "good"
