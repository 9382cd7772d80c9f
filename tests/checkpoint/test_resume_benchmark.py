"""`python -m benchmarks.resume`: the rows that need no training, few times."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_kills_during_saves_and_damaged_files():
    command = [sys.executable, "-m", "benchmarks.resume", "--quick", "--candidates", "kdist"]
    command += ["--rows", "saves", "damage"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [line.split(" | ")[2].rstrip(" |") for line in done.stdout.splitlines()[2:]]
    assert found == ["5 of 5, nothing left over", "5 of 5", "6 of 6"]
