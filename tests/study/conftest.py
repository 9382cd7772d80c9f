"""Fixtures of studies whose trials are no processes."""

import pytest
from fake_runs import FakeRuns


@pytest.fixture
def runs():
    return FakeRuns()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
