"""The lines, a process that crashes or hangs, and the command on this machine."""

import os
import re
import subprocess
import sys

from kdist.tools.doctor.examine import Finding, check_tensorflow, print_findings


def test_a_line_for_each_finding(capsys):
    print_findings(
        [Finding("one", "good", "works"), Finding("other", "broken", "in [x]", "fix [it]")]
    )
    assert capsys.readouterr().out.splitlines() == [
        "good    one    works",
        "broken  other  in [x]",
        "               → fix [it]",
        "",
        "1 good, 0 slow, 1 broken, 0 absent",
    ]


PROGRAM = """
import os, signal, sys
from kdist.processes.child import send_answer, read_arguments

send_answer(one={"name": "one", "state": "good", "text": "works", "remedy": ""})
print("a word\\n\\nthe last line", file=sys.stderr, flush=True)
end = read_arguments()["end"]
signal.pause() if end == "hang" else os.kill(os.getpid(), signal.SIGILL)
"""


def test_a_tensorflow_that_crashes_or_hangs():
    program = [sys.executable, "-c", PROGRAM]
    first, crash = check_tensorflow({"end": "crash"}, program=program)
    assert first == Finding("one", "good", "works")
    assert (crash.name, crash.state) == ("TensorFlow", "broken")
    assert crash.text == "the check's process ended with signal SIGILL: a word: the last line"
    (hang,) = check_tensorflow({"end": "hang"}, program=program, seconds=0.5)
    assert (hang.state, "not ended after 0.5 seconds" in hang.text) == ("broken", True)


def doctor(folder, *arguments, **environment):
    """Run the command; return its exit code, and state and text by name."""
    done = subprocess.run(
        [sys.executable, "-m", "kdist", "doctor", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    lines = [re.split("  +", line, maxsplit=2) for line in done.stdout.splitlines()]
    return done.returncode, {line[1]: (line[0], line[2]) for line in lines if len(line) == 3}


def test_on_this_machine(tmp_path):
    code, found = doctor(tmp_path, "--replicas=2", CUDA_VISIBLE_DEVICES="-1")
    assert code == int(any(state == "broken" for state, _ in found.values()))
    for name in ("kdist", "TensorFlow", "all-reduce"):
        assert found[name][0] == "good", found[name]
    assert "64 MB over 2 logical CPUs" in found["all-reduce"][1]
    assert list(tmp_path.iterdir()) == []


def test_with_a_tensorflow_that_cannot_be_imported(tmp_path):
    broken = tmp_path / "broken" / "tensorflow"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libthing.so: undefined symbol')\n")
    path = os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")])
    code, found = doctor(tmp_path, PYTHONPATH=path)
    assert code == 1
    state, text = found["TensorFlow"]
    assert state == "broken"
    assert "undefined symbol" in text
    assert "all-reduce" not in found
    assert found["kdist"][0] == "good"
