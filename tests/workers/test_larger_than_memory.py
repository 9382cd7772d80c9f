"""Weights that are larger than the memory of a worker."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LAYERS, WEIGHTS, LIMIT = 80, 2097, 1950  # MB


def train(way):
    program = str(Path(__file__).with_name("train_within_limit.py"))
    launch = [sys.executable, "-m", "kdist", "launch", "--workers", "4", program]
    arguments = [way, str(LAYERS), str(LIMIT)]
    return subprocess.run([*launch, *arguments], capture_output=True, text=True, timeout=600)


def test_divided_weights_train_where_whole_weights_do_not_fit():
    assert train("ordinary").returncode != 0
    found = train("shard_weights")
    assert found.returncode == 0, found.stderr[-4000:]
    assert f"trained weights of {WEIGHTS} MB" in found.stdout
    assert WEIGHTS > LIMIT
