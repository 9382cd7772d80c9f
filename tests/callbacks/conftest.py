"""Callbacks are tested on models whose tracing takes longer than their training."""

import pytest


@pytest.fixture(autouse=True)
def traced_sooner(without_graph_optimizer):
    """Every test here."""
