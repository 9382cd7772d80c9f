"""Trials are tested on models whose tracing takes longer than their training."""

import kdist
import pytest
from fake_runs import FakeRuns


@pytest.fixture(autouse=True, scope="module")
def traced_sooner(without_graph_optimizer_in_module):
    """Every test here."""


@pytest.fixture
def runs():
    return FakeRuns()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def one():
    """A strategy of one replica."""
    return kdist.MirroredStrategy(replicas=1)
