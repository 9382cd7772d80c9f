"""A short draw of `python -m benchmarks.fuzz`, and command lines that once ended in a traceback."""

import os
import subprocess
import sys
from pathlib import Path

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
    ends.pop("in a process, alike", None)
    assert sum(ends.values()) == 120
    # A draw in which nothing gets far tells little.
    assert any(end.endswith("training begins") for end in ends)
    assert list(tmp_path.iterdir()) == []
