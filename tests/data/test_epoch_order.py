"""The order of an epoch, against what random permutations do."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data.epoch_order import EpochOrder


def permutation(order, epoch):
    steps = range(epoch * order.steps, (epoch + 1) * order.steps)
    return np.concatenate([order(tf.constant(step, tf.int64)).numpy() for step in steps])


def permutations(count, epochs, seed=1):
    order = EpochOrder(count, batch_size=count, seed=seed)
    return np.array([permutation(order, epoch) for epoch in range(epochs)])


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 100),
    batch_size=st.integers(10, 70),
    seed=st.integers(-(2**40), 2**40),
    epoch=st.integers(0, 10**6),
)
def test_every_sample_is_in_one_batch_of_an_epoch(count, batch_size, seed, epoch):
    order = EpochOrder(count, batch_size=batch_size, seed=seed)
    found = permutation(order, epoch)
    assert sorted(found) == list(range(count))
    np.testing.assert_array_equal(found, permutation(order, epoch))


def test_the_seed_and_the_epoch_decide():
    orders = np.concatenate([permutations(100, epochs=30, seed=seed) for seed in (0, 1)])
    assert len(np.unique(orders, axis=0)) == 60


def test_each_sample_is_in_each_place_alike():
    """A chi-squared test of each place, of 300 epochs."""
    count, epochs = 12, 300
    found = permutations(count, epochs)
    seen = np.array([np.bincount(column, minlength=count) for column in found.T])
    expected = epochs / count
    chi_squared = ((seen - expected) ** 2 / expected).sum()
    freedom = (count - 1) ** 2
    assert abs(chi_squared - freedom) < 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("count", [10_000, 60_000])
def test_classes_that_lie_one_after_the_other_are_mixed(count):
    """The variance of a class's share of a batch, against that of draws without replacement."""
    classes, batch_size, epochs = 10, 500, 40
    batches = permutations(count, epochs).reshape(-1, batch_size) * classes // count
    shares = np.array([np.bincount(batch, minlength=classes) for batch in batches])
    share = 1 / classes
    variance = batch_size * share * (1 - share) * (count - batch_size) / (count - 1)
    ratio = ((shares - batch_size * share) ** 2).mean() / variance
    freedom = epochs * (count // batch_size - 1) * (classes - 1)
    assert abs(ratio - 1) < 5 * np.sqrt(2 / freedom)


def test_neighbours_and_epochs_are_independent():
    count, epochs = 1000, 100
    found = permutations(count, epochs)
    neighbours = (np.abs(np.diff(found)) == 1).sum(axis=1)  # 2 of them on average
    assert abs(neighbours.mean() - 2) < 5 * np.sqrt(2 / epochs)
    kept = (found[1:] == found[:-1]).sum(axis=1)  # 1
    assert abs(kept.mean() - 1) < 5 * np.sqrt(1 / epochs)
