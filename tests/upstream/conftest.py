import kdist
import pytest
import tensorflow as tf
from kdist._upstream import row_counts
from replicas import stock_mirrored


@pytest.fixture
def stock():
    """TensorFlow's own strategy over two logical CPUs."""
    return stock_mirrored()


@pytest.fixture
def divided_as_on_workers(monkeypatch):
    """A strategy of kdist whose batches TensorFlow divides, with the patches that workers have."""
    for patch in row_counts.WORKER_PATCHES:
        monkeypatch.setattr(patch.owner, patch.name, getattr(patch.owner, patch.name))
        patch.install()
    strategy = kdist.MirroredStrategy(replicas=2)
    monkeypatch.setattr(
        strategy,
        "experimental_distribute_dataset",
        lambda data: tf.distribute.Strategy.experimental_distribute_dataset(strategy, data),
    )
    return strategy
