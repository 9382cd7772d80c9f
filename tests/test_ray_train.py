"""The example for Ray Train, where Ray is installed: `pip install '.[ray]'`."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

EXAMPLE = Path(__file__).parent.parent / "examples" / "ray_train.py"
REPORT = re.compile(r"RayTrainWorker pid=(\d+).*Reporting training result 2:.*checkpoint=None")


def test_a_worker_that_is_killed_is_replaced_and_the_training_goes_on(tmp_path):
    options = ["--workers", "2", "--epochs", "4", "--images", "128", "--storage", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE), *options],
        env=os.environ | {"RAY_COLOR_PREFIX": "0"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines, is_killed = [], False
    for line in process.stdout:
        lines.append(line)
        reported = REPORT.search(
            line
        )  # by the worker that is not the chief, when the first epoch is safe
        if reported and not is_killed:
            is_killed = True
            os.kill(int(reported[1]), signal.SIGKILL)
    output = "".join(lines)
    assert process.wait() == 0, output
    assert is_killed, output
    assert "worker 1 of 2: 0 epochs are done" in output
    assert re.search("worker 1 of 2: [12] epochs are done", output), output
    assert re.search(r"^epoch 4: accuracy 0\.\d+$", output, re.MULTILINE), output
