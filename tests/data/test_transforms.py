"""Crops, flips and cutouts against NumPy and tf.image, one image at a time.

An oracle takes the numbers that are drawn for each image, and changes it by other means.
"""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data import (
    RandomCrop,
    RandomCutout,
    RandomHorizontalFlip,
    training_batches,
)
from kdist.errors import UserError

SEED = (2026, 7)
SHAPES = st.tuples(st.integers(0, 4), st.integers(4, 9), st.integers(4, 9), st.integers(1, 4))
SEEDS = st.tuples(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
ALL = [
    RandomCrop(5),
    RandomCrop((4, 6), padding=1),
    RandomHorizontalFlip(),
    RandomCutout((3, 5), fill=128),
]


def random_images(shape):
    return np.random.default_rng(0).uniform(0, 255, shape).astype(np.float32)


def draws(numbers, count, seed):
    """The numbers from 0 to 1 of each image."""
    return tf.random.stateless_uniform((numbers, count), seed, alg="philox").numpy().astype(float)


def check(augmentation, images, seed, expected, atol=0.0):
    changed = augmentation(images, seed=seed)
    assert changed.dtype == tf.float32
    assert len(changed) == len(images)
    for image, one in zip(changed.numpy(), expected, strict=True):
        np.testing.assert_allclose(image, one, rtol=0, atol=atol)


@settings(deadline=None, max_examples=30)
@given(
    shape=SHAPES,
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.integers(0, 3),
    seed=SEEDS,
)
def test_crops_are_slices_of_padded_images(shape, size, padding, seed):
    images = random_images(shape)
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(images, around, "reflect")
    down, right = draws(2, shape[0], seed)
    tops = np.floor(down * (padded.shape[1] - size[0] + 1)).astype(int)
    lefts = np.floor(right * (padded.shape[2] - size[1] + 1)).astype(int)
    expected = [
        one[top : top + size[0], left : left + size[1]]
        for one, top, left in zip(padded, tops, lefts, strict=True)
    ]
    check(RandomCrop(size, padding=padding), images, seed, expected)


def test_every_place_of_a_crop_is_as_likely():
    count = 20_000
    line = np.broadcast_to(np.arange(30.0, dtype=np.float32).reshape(5, 6, 1), (count, 5, 6, 1))
    corners = RandomCrop((4, 3))(line, seed=SEED).numpy()[:, 0, 0, 0]
    places, counts = np.unique(corners, return_counts=True)
    assert places.tolist() == [6 * down + right for down in range(2) for right in range(4)]
    assert np.abs(counts - count / 8).max() < 4.5 * math.sqrt(count / 8)


@settings(deadline=None, max_examples=30)
@given(
    shape=SHAPES,
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=SEEDS,
    each=st.booleans(),
)
def test_cutouts_cover_a_window_of_each_image(shape, size, seed, each):
    images = random_images(shape)
    fill = np.arange(shape[3]) - 1.5 if each else [-7]
    down, right = draws(2, shape[0], seed)
    expected = images.copy()
    for image, top, left in zip(expected, down, right, strict=True):
        top = math.floor(top * (shape[1] - size[0] + 1))
        left = math.floor(left * (shape[2] - size[1] + 1))
        image[top : top + size[0], left : left + size[1]] = fill
    check(RandomCutout(size, fill=fill), images, seed, expected)


@settings(deadline=None, max_examples=20)
@given(shape=SHAPES, seed=SEEDS)
def test_flips_are_numpys(shape, seed):
    images = random_images(shape)
    (side,) = draws(1, shape[0], seed)
    expected = [one[:, ::-1] if mirror else one for one, mirror in zip(images, side < 0.5)]  # noqa: B905
    check(RandomHorizontalFlip(), images, seed, expected)


@pytest.mark.parametrize("augmentation", ALL, ids=lambda one: type(one).__name__)
def test_the_seed_decides_and_any_number_of_images_will_do(augmentation):
    images = random_images((6, 8, 9, 3))
    first, same, other = (augmentation(images, seed=seed) for seed in (SEED, SEED, (2026, 8)))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    alike = np.broadcast_to(images[:1], images.shape)
    assert len({one.tobytes() for one in augmentation(alike, seed=SEED).numpy()}) > 1
    graph = tf.function(
        lambda batch: augmentation(batch, seed=tf.constant(SEED, tf.int64)),
        input_signature=[tf.TensorSpec((None, 8, 9, 3))],
    )
    np.testing.assert_allclose(graph(images), first, atol=1e-3)
    assert graph.get_concrete_function().output_shapes[1:] == first.shape[1:]
    assert len(augmentation(images[:0], seed=SEED)) == 0


def test_images_that_do_not_fit_are_an_error():
    images = tf.zeros((1, 4, 8, 3))
    for change in (RandomCrop(9, padding=2), RandomCutout((5, 2))):
        with pytest.raises(UserError, match="window .* is larger than the images .*: pass a smal"):
            change(images, seed=SEED)


# In the pipeline

PIXELS = np.random.default_rng(0).integers(0, 256, (21, 8, 9, 3), np.uint8)
LABELS = np.arange(21)


def batches(augment=None, **options):
    changes = (
        [RandomCrop((7, 6)), RandomHorizontalFlip(), RandomCutout((3, 5), fill=128)]
        if augment is None
        else augment
    )
    defaults = {"batch_size": 4, "seed": 5, "standardization": tf.image.per_image_standardization}
    return training_batches(PIXELS, LABELS, augment=changes, **(defaults | options))


def epoch(data):
    images, labels = zip(*data.as_numpy_iterator(), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def test_a_list_is_applied_in_its_order_with_seeds_of_their_own():
    seen = []

    def noting(images, *, seed):
        assert images.dtype == tf.float32
        seen.append(len(seen))
        return tf.concat([images, tf.zeros_like(images) + tf.cast(seed[0], tf.float32)], -1)

    data = batches([RandomCrop((7, 6)), noting, noting], standardization=lambda images: images)
    assert data.element_spec[0].shape == (None, 7, 6, 12)
    images, labels = next(data.as_numpy_iterator())
    crops = RandomCrop((7, 6))(PIXELS[labels].astype(np.float32), seed=(5, 0))
    np.testing.assert_array_equal(images[..., :3], crops)
    seeds = images[..., 3:6].max(), images[..., 6:].max()
    assert seeds == (float(5 + 2**32), float(5 + 2 * 2**32))


def test_batch_k_of_epoch_e_is_a_function_of_seed_e_and_k():
    data, other = batches(), batches(seed=6)
    epochs = [list(data.as_numpy_iterator()) for _ in range(3)]
    again = batches()
    for _ in range(2):
        next(iter(again))  # an epoch that is not read to its end
    for (images, labels), (same, as_well) in zip(epochs[2], again.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(images, same)
        np.testing.assert_array_equal(labels, as_well)
    for first, second in itertools.combinations([*epochs, list(other.as_numpy_iterator())], 2):
        assert not np.array_equal(first[0][0], second[0][0])
