"""The screen, its JSON, and the command on this machine, with TensorFlow and without."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import fake_machine
from kdist.doctor.finding import (
    Finding,
    anonymous,
    as_json,
    count_line,
    private_words,
    screen_lines,
)
from kdist.doctor.run import examine_machine
from kdist.doctor.tensorflow_facts import TensorFlowFacts
from kdist.errors import UserError

FINDINGS = [
    Finding("one", "good", "works"),
    Finding("other", "broken", "in /home/ada/x", "fix [it] on node7"),
    Finding("third", "slow", "by ada, adagrad stays"),
]


def test_screen():
    assert screen_lines(FINDINGS[:2]) == [
        "good    one    works",
        "broken  other  in /home/ada/x",
        "               → fix [it] on node7",
        "",
        "1 good, 0 slow, 1 broken, 0 absent",
    ]
    assert "\x1b[" in "".join(screen_lines(FINDINGS, colour=True))
    assert count_line(FINDINGS) == "1 good, 1 slow, 1 broken, 0 absent"


def test_json_has_no_private_names():
    private = {"/home/ada": "~", "ada": "USER", "node7": "HOST", "": "never"}
    report = json.loads(as_json(FINDINGS, private))
    assert [one["text"] for one in report["findings"]] == [
        "works",
        "in ~/x",
        "by USER, adagrad stays",
    ]
    assert report["findings"][1]["remedy"] == "fix [it] on HOST"
    assert anonymous("nothing", private) == "nothing"
    states = [one["state"] for one in json.loads(as_json(FINDINGS, {"good": "USER"}))["findings"]]
    assert states == ["good", "broken", "slow"]  # also of a user of that name


def test_a_user_without_home_and_name(monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    assert private_words() == {"ada": "USER", "node7": "HOST"}


def test_a_number_of_replicas_that_cannot_be(tmp_path):
    refused = TensorFlowFacts(errors={"all_reduce": "UserError: received replicas=99, but"})
    with pytest.raises(UserError, match="received replicas=99"):
        examine_machine(replicas=99, machine=fake_machine(tmp_path), facts_of=lambda _: refused)


def test_another_error_does_not_end_the_screen(tmp_path):
    wrong = TensorFlowFacts(errors={"all_reduce": "UserError: TF_CONFIG is not JSON (odd): write"})
    machine = fake_machine(tmp_path, environment={"TF_CONFIG": "{"})
    found = examine_machine(
        replicas=2, run_dir=str(tmp_path / "runs"), machine=machine, facts_of=lambda _: wrong
    )
    states = {one.name: one.state for one in found}
    assert (states["TF_CONFIG"], states["all-reduce"]) == ("broken", "absent")


def test_no_process_can_be_started(tmp_path):
    def fail(_):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    findings = examine_machine(
        run_dir=str(tmp_path / "runs"), machine=fake_machine(tmp_path), facts_of=fail
    )
    states = {one.name: one.state for one in findings}
    assert states["import tensorflow"] == "broken"
    assert {"memory", "cores", "W&B", "temp folder"} <= set(states)


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
    for name in ("Python", "TensorFlow", "Keras", "import tensorflow", "import keras"):
        assert found[name]["state"] == "good", found[name]
    assert found["all-reduce"]["state"] == "good"
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
    assert found["import tensorflow"]["state"] == "broken"
    assert "undefined symbol" in found["import tensorflow"]["text"]
    assert found["all-reduce"]["state"] == "absent"
    assert found["memory"]["state"] in ("good", "slow")
