"""Sets of images, and their standardization."""

import numpy as np
import pytest
import tensorflow as tf
from kdist.data import ImageData, Standardization
from kdist.errors import UserError


@pytest.fixture
def data():
    """Each image is filled with its own number, and its label is that number modulo 3."""
    numbers = np.arange(12)
    images = np.broadcast_to(numbers[:, None, None, None], (12, 4, 5, 2)).astype(np.uint8)
    return ImageData(
        name="numbers",
        source="here",
        train_images=images[:8],
        train_labels=numbers[:8] % 3,
        test_images=images[8:],
        test_labels=numbers[8:] % 3,
        class_names=("a", "b", "c"),
    )


@pytest.mark.parametrize(("n", "test"), [(1, 1), (3, 3), (4, 4), (6, 4), (8, 4)])
def test_a_subset_is_the_first_images(data, n, test):
    subset = data.subset(n)
    assert list(subset.train_images[:, 0, 0, 0]) == list(range(n))
    assert list(subset.train_labels) == [number % 3 for number in range(n)]
    assert list(subset.test_images[:, 0, 0, 0]) == list(range(8, 8 + test))
    assert list(subset.test_labels) == [number % 3 for number in range(8, 8 + test)]
    assert (subset.name, subset.source, subset.class_names) == ("numbers", "here", ("a", "b", "c"))


@pytest.mark.parametrize("n", [0, -1, 9, 2.0, True, None])
def test_a_subset_that_is_not_there_is_an_error(data, n):
    with pytest.raises(UserError, match=f"subset.n={n}. of numbers: n has to be .* from 1 to 8"):
        data.subset(n)


@pytest.mark.parametrize("count", [1, 7, 1024, 2500])
def test_measures_each_channel(count):
    random = np.random.default_rng(count)
    images = random.integers(0, 256, (count, 3, 4, 2), np.uint8)
    images[..., 1] //= 16
    measured = Standardization.of(images)
    channels = images.astype(np.float64)
    np.testing.assert_allclose(measured.mean, channels.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(measured.deviation, channels.std((0, 1, 2)), rtol=1e-12)


def test_a_large_mean_does_not_swallow_the_deviation():
    images = np.array([1e8, 1e8 + 1], np.float64).reshape(2, 1, 1, 1)
    measured = Standardization.of(images)
    assert measured.mean.tolist() == [1e8 + 0.5]
    assert measured.deviation.tolist() == [0.5]


def test_a_constant_channel_becomes_zero():
    images = np.full((5, 2, 2, 2), 7, np.uint8)
    images[0, 0, 0, 1] = 9
    result = Standardization.of(images)(images)
    assert not result[..., 0].any()
    assert np.isfinite(result).all()
    assert result[..., 1].std() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, np.float64])
def test_arrays_and_tensors_become_the_same_float32(dtype):
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 3)).astype(dtype)
    standardization = Standardization.of(images)
    expected = (images - images.mean((0, 1, 2))) / images.std((0, 1, 2))
    array = standardization(images)
    assert type(array) is np.ndarray
    assert array.dtype == np.float32
    np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)
    tensor = standardization(tf.constant(images))
    assert tensor.dtype == tf.float32
    np.testing.assert_array_equal(tensor, array)
    assert standardization(images[:0]).shape == (0, 3, 4, 3)
    np.testing.assert_array_equal(tf.function(standardization)(images), tensor)


@pytest.mark.parametrize("shape", [(0, 4, 4, 1), (4, 4, 1), (3,)])
def test_nothing_to_measure_is_an_error(shape):
    with pytest.raises(UserError, match="need images of shape"):
        Standardization.of(np.zeros(shape, np.uint8))
