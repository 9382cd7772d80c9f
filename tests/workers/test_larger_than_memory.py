"""Weights that are larger than the memory of a worker."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LAYERS, WEIGHTS, LIMIT = 80, 2097, 1950  # MB


def train(way, workers):
    program = str(Path(__file__).with_name("train_within_limit.py"))
    launch = [sys.executable, "-m", "kdist", "launch", "--workers", str(workers), program]
    arguments = [way, str(LAYERS), str(LIMIT)]
    return subprocess.run([*launch, *arguments], capture_output=True, text=True, timeout=3600)


def test_divided_weights_train_where_whole_weights_do_not_fit():
    assert train("ordinary", workers=1).returncode != 0
    done = train("shard_weights", workers=4)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"trained weights of {WEIGHTS} MB" in done.stdout
    assert WEIGHTS > LIMIT
