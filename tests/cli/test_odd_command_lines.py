"""Odd command lines, settings and run folders end with a line that names the mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("odd_command_lines.py")


@pytest.mark.slow
def test_odd_command_lines_end_as_documented():
    done = subprocess.run([sys.executable, SCRIPT, "300", "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    assert sum(ends.values()) >= 300
    # Not all of them end before the command begins.
    for end in ("train: training begins", "report: exit code 0", "train: exit code 2"):
        assert ends.get(end), ends
