"""Batches of training and evaluation, and the order of an epoch, against random permutations."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data import Standardization, evaluation_batches, fashion_mnist, training_batches
from kdist.data.image_batches import EpochOrder
from kdist.errors import UserError
from kdist.training.config import TrainConfig, make_plan
from kdist.training.model_and_data import make_pipelines

COUNT = 21
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 8, 2), np.uint8)
LABELS = np.arange(COUNT)  # so that a label tells which image it belongs to
STANDARDIZATION = Standardization.of(IMAGES)


def train(images=IMAGES, labels=LABELS, **options):
    defaults = {"batch_size": 4, "seed": 1, "standardization": STANDARDIZATION}
    return training_batches(images, labels, **(defaults | options))


def evaluate(images=IMAGES, labels=LABELS, **options):
    defaults = {"batch_size": 4, "standardization": STANDARDIZATION}
    return evaluation_batches(images, labels, **(defaults | options))


def epoch(batches):
    images, labels = zip(*batches.as_numpy_iterator(), strict=True)
    return np.concatenate(images), np.concatenate(labels)


BOTH = pytest.mark.parametrize("make", [train, evaluate])


@BOTH
@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(4, [4, 4, 4, 4, 4, 1]), (7, [7, 7, 7]), (100, [21])]
)
def test_every_image_is_in_one_batch(make, batch_size, sizes):
    batches = make(batch_size=batch_size)
    assert batches.cardinality() == len(sizes)
    assert batches.element_spec == (
        tf.TensorSpec((None, 6, 8, 2), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    )
    for _ in range(2):
        assert [len(labels) for _, labels in batches] == sizes
        assert sorted(epoch(batches)[1]) == list(range(COUNT))


def test_evaluation_keeps_the_order():
    images, labels = epoch(evaluate())
    np.testing.assert_array_equal(labels, LABELS)
    np.testing.assert_array_equal(images, STANDARDIZATION(IMAGES))


def test_labels_stay_with_their_images():
    images, labels = epoch(train(augment=False))
    np.testing.assert_array_equal(images, STANDARDIZATION(IMAGES[labels]))


@pytest.mark.parametrize("make", [train, evaluate, functools.partial(train, augment=False)])
def test_standardization_gets_float32_in_every_case(make):
    def seen(batch):
        assert batch.dtype == tf.float32
        return tf.image.convert_image_dtype(batch, tf.float32)  # divides bytes by 255

    assert epoch(make(standardization=seen))[0].max() > 200


def test_labels_stay_with_their_variants():
    # Every image has one colour, which no variant changes.
    images = np.broadcast_to(LABELS[:, None, None, None], (COUNT, 6, 8, 1)).astype(np.uint8)
    batches = train(images=images, standardization=lambda batch: tf.cast(batch, tf.float32))
    varied, labels = epoch(batches)
    np.testing.assert_allclose(varied, images[labels], rtol=1e-6)


def test_every_epoch_has_another_order_and_other_variants():
    batches = train()
    epochs = [epoch(batches) for _ in range(3)]
    orders = {tuple(labels) for _, labels in epochs}
    assert len(orders) == 3
    of_image_0 = [images[list(labels).index(0)] for images, labels in epochs]
    assert len({image.tobytes() for image in of_image_0}) == 3


def test_the_seed_decides_every_epoch():
    first, same, other = train(seed=5), train(seed=5), train(seed=6)
    for _ in range(3):
        images, labels = epoch(first)
        same_images, same_labels = epoch(same)
        np.testing.assert_array_equal(labels, same_labels)
        np.testing.assert_array_equal(images, same_images)
        other_images, other_labels = epoch(other)
        assert list(labels) != list(other_labels)
        assert not np.array_equal(images, other_images)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_share_what_one_would_get(replicas):
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(replicas)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    alone = train()
    shared = strategy.experimental_distribute_dataset(train())
    for _ in range(2):
        parts = [[strategy.experimental_local_results(part) for part in batch] for batch in shared]
        images, labels = (
            np.concatenate([part.numpy() for batch in parts for part in batch[which]])
            for which in (0, 1)
        )
        expected_images, expected_labels = epoch(alone)
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_array_equal(images, expected_images)


@BOTH
def test_no_sharding_is_left_to_guess(make):
    policy = make().options().experimental_distribute.auto_shard_policy
    assert policy == tf.data.experimental.AutoShardPolicy.DATA


@BOTH
@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, None])
def test_a_batch_size_that_is_none_is_an_error(make, batch_size):
    with pytest.raises(UserError, match="has to be an integer of at least 1"):
        make(batch_size=batch_size)


@BOTH
def test_images_without_channels_are_an_error(make):
    with pytest.raises(
        UserError, match=r"\(21, 6, 8\), but has to have the shape \(images, height, w"
    ):
        make(images=IMAGES[..., 0])


@BOTH
@pytest.mark.parametrize("count", [0, 20])
def test_labels_that_do_not_match_are_an_error(make, count):
    with pytest.raises(UserError, match="pass one label per image"):
        make(images=IMAGES[:count], labels=LABELS if count else LABELS[:0])


@pytest.mark.parametrize("whole_pixels", [False, True])
def test_a_runs_setting_decides_on_whole_pixels(whole_pixels):
    config = TrainConfig(dataset="sample", batch_size=256, shift=0.1, whole_pixels=whole_pixels)
    data = fashion_mnist(sample=True, announce=lambda _: None).subset(256)
    training, _ = make_pipelines(config, data, make_plan(config, replicas=1))
    images, _ = epoch(training)
    assert (len(np.unique(images)) <= 256) == whole_pixels


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


def test_the_order_is_the_same_without_augmentation():
    np.testing.assert_array_equal(epoch(train())[1], epoch(train(augment=False))[1])
