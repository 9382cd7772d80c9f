"""Trials are tested on models whose tracing takes longer than their training."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def traced_sooner(without_graph_optimizer_in_module):
    """Every test here."""
