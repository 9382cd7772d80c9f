"""The screen, its JSON, checks that crash or hang, and the command on this machine."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kdist.doctor.examine import Check, run_checks
from kdist.doctor.finding import Finding, as_json, print_findings
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
import os, signal
from kdist.doctor.finding import Finding
from kdist.doctor.examine import Check, answer_checks
from kdist.errors import UserError

def crash():
    print("a word\\n\\nthe last one", flush=True)
    os.kill(os.getpid(), signal.SIGILL)

def mistake():
    raise UserError("wrong: change it")

good = lambda: Finding("one", "good", str(os.getpid()))
answer_checks([
    Check("one", good),
    Check("crashes", crash),
    Check("two", lambda: [good(), Finding("three", "slow", "")]),
    Check("not reached", good, needs=("one", "crashes")),
    Check("hangs", signal.pause),
    Check("user", mistake),
    Check("other", lambda: 1 / 0, remedy="mend it"),
    Check("exits", lambda: os._exit(3)),
])
"""


def test_checks_that_crash_hang_or_fail(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    names = ("one", "crashes", "two", "not reached", "hangs", "user", "other", "exits")
    seconds = {"hangs": 0.5}
    checks = [
        Check(name, list, seconds=seconds.get(name, 60), remedy=f"mend {name}") for name in names
    ]
    found = run_checks(checks, [sys.executable, str(path)], {})
    first, crash, second, slow, hang, user, other, ends = found
    assert (first.state, second.state, slow.name) == ("good", "good", "three")
    assert first.text != second.text  # another process
    assert crash == Finding(
        "crashes",
        "broken",
        "the process was ended by SIGILL: a word the last one",
        "mend crashes",
    )
    assert (hang.state, hang.text) == ("broken", "not done after 0.5 seconds")
    assert (user.text, user.remedy) == ("wrong: change it", "")
    assert other.text == "the check failed: ZeroDivisionError: division by zero"
    assert other.remedy == "mend it"
    assert ends.text == "the process ended with exit code 3"


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
    assert found["W&B"]["text"] == "WANDB_MODE=offline"
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
    assert found["memory"]["state"] in ("good", "slow")
