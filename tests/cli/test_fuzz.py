"""A short draw of `python -m benchmarks.fuzz`, and command lines that once ended in a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMANDS = (
    "train",
    "check",
    "evaluate",
    "launch",
    "sweep",
    "tune",
    "report",
    "find",
    "devices",
    "doctor",
    "dashboard",
)
ROOT = Path(__file__).parents[2]


def test_a_draw_of_odd_command_lines_ends_as_documented(tmp_path):
    command = [sys.executable, "-m", "benchmarks.fuzz", "--cases", "120", "--processes", "3"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ends = {line.split(None, 1)[1]: int(line.split()[0]) for line in done.stdout.splitlines()}
    # More of those that end are drawn than are run again.
    assert ends.pop("in a process, alike") == 3
    assert sum(ends.values()) >= 100  # with those below; what is drawn is any
    for command in (
        "train",
        "check",
        "evaluate",
        "launch",
        "sweep",
        "tune",
        "find",
        "devices",
        "doctor",
    ):
        assert ends[f"{command}: training begins"], ends
    for command in ("report", "dashboard"):
        assert ends[f"{command}: exit code 0"], ends
    for command in COMMANDS:
        assert ends[f"{command}: exit code 2"], ends
    assert list(tmp_path.iterdir()) == []
