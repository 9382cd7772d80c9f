"""The augmentation against a loop over single pixels.

Two channels of every image hold the coordinates of its pixels. What has become of them tells how
the image was shifted and whether it was mirrored; the loop then does the same to the rest.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from kdist.data.flip_and_shift import RandomFlipAndShift
from kdist.errors import UserError


def with_coordinates(content):
    count, height, width, _ = content.shape
    rows, columns = np.mgrid[:height, :width]
    coordinates = np.broadcast_to(np.stack([rows, columns], -1), (count, height, width, 2))
    return np.concatenate([coordinates, content], -1).astype(np.float32)


def variants_of(images, *, seed=(1, 2), **options):
    return RandomFlipAndShift(images, **options)(range(len(images)), seed=seed).numpy()


def found_transforms(variants):
    """(down, right, mirrored) of each variant, in pixels, for shifts of at most 0.2."""
    height, width = variants.shape[1:3]
    middle_row, middle_column = height // 2, width // 2
    for variant in variants.astype(np.float64):
        mirrored = bool(variant[0, 0, 1] > variant[0, -1, 1])
        origin = width - 1 - middle_column if mirrored else middle_column
        yield (
            variant[middle_row, 0, 0] - middle_row,
            variant[0, middle_column, 1] - origin,
            mirrored,
        )


def between(line, position):
    """The value at a fractional position of a sequence, its ends continued."""
    position = min(max(position, 0), len(line) - 1)
    low = math.floor(position)
    high = min(low + 1, len(line) - 1)
    return line[low] * (1 - (position - low)) + line[high] * (position - low)


def shifted_and_mirrored(image, down, right, mirrored):
    height, width, channels = image.shape
    result = np.empty(image.shape)
    for row in range(height):
        for column in range(width):
            for channel in range(channels):
                line = [between(image[:, at, channel], row + down) for at in range(width)]
                to = width - 1 - column if mirrored else column
                result[row, to, channel] = between(line, column + right)
    return result


@settings(deadline=None, max_examples=25)
@given(
    shape=st.tuples(st.integers(0, 4), st.integers(5, 9), st.integers(5, 9), st.integers(1, 3)),
    shift=st.floats(0, 0.2),
    whole_pixels=st.booleans(),
    seed=st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)),
)
def test_is_what_a_loop_over_pixels_gives(shape, shift, whole_pixels, seed):
    content = np.random.default_rng(0).uniform(-3, 3, shape)
    images = with_coordinates(content)
    variants = variants_of(images, seed=seed, shift=shift, whole_pixels=whole_pixels)
    assert variants.dtype == np.float32
    assert variants.shape == images.shape
    for image, variant, transform in zip(images, variants, found_transforms(variants), strict=True):
        expected = shifted_and_mirrored(image.astype(np.float64), *transform)
        np.testing.assert_allclose(variant, expected, atol=2e-5)


@settings(deadline=None, max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    indices=st.lists(st.integers(0, 3), max_size=6),
    shift=st.floats(0, 1),
    whole_pixels=st.booleans(),
    seed=st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1)),
)
def test_large_shifts_of_small_images(shape, indices, shift, whole_pixels, seed):
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    indices = [index % len(images) for index in indices]
    variants = RandomFlipAndShift(images, shift=shift, whole_pixels=whole_pixels)(
        indices, seed=seed
    )
    assert variants.dtype == tf.float32
    draws = tf.random.stateless_uniform((3, len(indices)), seed, minval=-1, maxval=1).numpy()
    longest = np.float32(shift) * np.float32(shape[1:3])[:, np.newaxis]
    shifts = draws[:2] * longest
    if whole_pixels:
        longest = np.round(longest)
        shifts = np.floor((draws[:2] + 1) * (longest + np.float32(0.5))) - longest
    mirrored = draws[2] < 0
    shifts[1, mirrored] *= -1  # they are shifted after they were mirrored
    transforms = zip(*shifts.astype(np.float64), mirrored, strict=True)
    for index, variant, transform in zip(indices, variants, transforms, strict=True):
        expected = shifted_and_mirrored(images[index].astype(np.float64), *transform)
        np.testing.assert_allclose(variant, expected, atol=1e-3)


def test_flips_and_shifts_are_distributed_as_promised():
    count, height, width = 20_000, 10, 20
    images = with_coordinates(np.zeros((count, height, width, 0)))
    variants = variants_of(images, seed=(3, 4))
    down, right, mirrored = np.array(list(found_transforms(variants))).T
    for draws, bound in ((down, 0.2 * height), (right, 0.2 * width)):
        assert np.abs(draws).max() <= bound + 1e-5
        # Kolmogorov's distance to a uniform draw; 1.95 / sqrt(n) is exceeded once in 1000.
        rank = (np.arange(count) + 0.5) / count
        distance = np.abs((np.sort(draws) / bound + 1) / 2 - rank).max()
        assert distance < 1.95 / math.sqrt(count)
    assert abs(mirrored.mean() - 0.5) < 4 * 0.5 / math.sqrt(count)
    correlation = np.corrcoef([down, right, mirrored]) - np.eye(3)
    assert np.abs(correlation).max() < 4 / math.sqrt(count)


def test_every_shift_by_whole_pixels_is_as_likely():
    count, height, width = 20_000, 10, 20
    images = with_coordinates(np.zeros((count, height, width, 0)))
    variants = variants_of(images, seed=(3, 4), whole_pixels=True)
    down, right, _ = np.array(list(found_transforms(variants))).T
    for draws, longest in ((down, 2), (right, 4)):
        shifts, counts = np.unique(draws, return_counts=True)
        np.testing.assert_array_equal(shifts, np.arange(-longest, longest + 1))
        expected = count / len(shifts)
        assert np.abs(counts - expected).max() < 4 * math.sqrt(expected)


def test_no_shift_only_mirrors():
    images = tf.random.stateless_uniform((40, 5, 6, 2), (1, 2)).numpy()
    variants = variants_of(images, shift=0.0)
    kept = (variants == images).all((1, 2, 3))
    mirrored = (variants == images[:, :, ::-1]).all((1, 2, 3))
    assert (kept ^ mirrored).all()
    assert 8 < kept.sum() < 32


@pytest.mark.parametrize("shift", [-0.1, 1.5, math.nan])
def test_a_shift_out_of_range_is_an_error(shift):
    with pytest.raises(UserError, match="has to be a fraction of height and width, from 0 to 1"):
        RandomFlipAndShift(np.zeros((1, 4, 4, 1), np.uint8), shift=shift)
