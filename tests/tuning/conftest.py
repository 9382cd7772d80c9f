"""KerasTuner collects garbage before every trial."""

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def little_garbage(without_graph_optimizer_in_module):
    """What other tests left need not be walked with each trial."""
    gc.freeze()
    yield
    gc.unfreeze()
