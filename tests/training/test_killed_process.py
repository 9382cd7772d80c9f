"""`kdist train`, killed by SIGKILL amid an epoch and resumed, against one that was not.

On a small network: the WideResNet takes ten times as long to trace, three times.
"""

import csv
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
from kdist.checkpoint import checkpoint_files
from small_network import STAND_IN

pytestmark = pytest.mark.slow

SETTINGS = "--dataset sample --subset 600 --batch-size 8 --replicas 2"
SETTINGS += " --epochs 2 --momentum 0.9 --ema-momentum 0.9 --checkpoint-every 1e-9 --keep 2"
TIMES = ("seconds", "images_per_sec")

KILLED = """
import os, signal, sys
from kdist.checkpoint.store import CheckpointStore
commit = CheckpointStore.commit
def committed(store, *, epoch, batch, **values):
    generation = commit(store, epoch=epoch, batch=batch, **values)
    if (epoch, batch) >= (1, 3):
        os.kill(os.getpid(), signal.SIGKILL)
    return generation
CheckpointStore.commit = committed
"""
BOTH = """
import sys
from kdist.cli import main
for arguments in {commands!r}:
    sys.argv = ["kdist", "train", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""


def rows_of(folder):
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def python(code):
    return subprocess.run([sys.executable, "-c", STAND_IN + code], capture_output=True, text=True)


def test_kill_9_and_resume_is_the_run_that_was_not_killed(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    commands = [[*SETTINGS.split(), "--run-dir", str(killed)]]
    done = python(KILLED + BOTH.format(commands=commands))
    assert done.returncode == -signal.SIGKILL, done.stderr
    newest = checkpoint_files(killed / "checkpoints")[0]
    assert (newest.epoch, newest.batch >= 3) == (1, True)
    with (killed / "history.csv").open("a") as file:
        file.write("2,9.")
    commands = [[*SETTINGS.split(), "--run-dir", str(whole)], ["--resume", str(killed)]]
    done = python(BOTH.format(commands=commands))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Resumed in epoch 2 after step {newest.batch} from {newest.path}" in done.stdout
    assert rows_of(killed) == rows_of(whole)
    one, other = (keras.models.load_model(folder / "model.keras") for folder in (killed, whole))
    values = zip(one.get_weights(), other.get_weights(), strict=True)
    assert all(np.array_equal(a, b) for a, b in values)
    states = zip(one.optimizer.variables, other.optimizer.variables, strict=True)
    assert all(np.array_equal(a, b) for a, b in states)
