"""ImageData: what fits together, and subsets of it."""

import dataclasses

import numpy as np
import pytest
from kdist.data import ImageData
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


def test_describes_itself(data):
    assert data.image_shape == (4, 5, 2)
    assert data.classes == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


@pytest.mark.parametrize(("n", "test"), [(1, 1), (3, 3), (4, 4), (6, 4), (8, 4)])
def test_a_subset_is_the_first_images(data, n, test):
    subset = data.subset(n)
    assert list(subset.train_images[:, 0, 0, 0]) == list(range(n))
    assert list(subset.train_labels) == [number % 3 for number in range(n)]
    assert list(subset.test_images[:, 0, 0, 0]) == list(range(8, 8 + test))
    assert list(subset.test_labels) == [number % 3 for number in range(8, 8 + test)]
    assert (subset.name, subset.source, subset.class_names) == ("numbers", "here", ("a", "b", "c"))


def test_a_subset_with_a_seed_is_drawn(data):
    drawn = [data.subset(5, seed=seed) for seed in (1, 1, 2)]
    numbers = [list(subset.train_images[:, 0, 0, 0]) for subset in drawn]
    assert numbers[0] == numbers[1] != numbers[2]
    for subset, train in zip(drawn, numbers, strict=True):
        assert len(set(train)) == 5
        assert set(train) <= set(range(8))
        np.testing.assert_array_equal(subset.train_labels, np.array(train) % 3)
        test = subset.test_images[:, 0, 0, 0]
        assert set(test) == {8, 9, 10, 11}
        np.testing.assert_array_equal(subset.test_labels, test % 3)


@pytest.mark.parametrize("n", [0, -1, 9, 2.0, True, None])
def test_a_subset_that_is_not_there_is_an_error(data, n):
    with pytest.raises(UserError, match=f"subset of {n} images of numbers .* from 1 to 8"):
        data.subset(n)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("train_images", np.zeros((8, 4, 5, 2)), "training images are float64 .*expected uint8"),
        ("train_images", np.zeros((8, 4, 5), np.uint8), r"of shape \(8, 4, 5\); expected uint8"),
        ("test_images", np.zeros((4, 4, 5, 1), np.uint8), "give both the same shape"),
        ("train_labels", np.zeros(7, int), "one integer for each of the 8 images"),
        ("train_labels", np.zeros(8), "training labels are float64"),
        ("test_labels", np.zeros((4, 1), int), r"test labels are int64 of shape \(4, 1\)"),
        ("test_labels", np.array([0, 1, 2, 3]), "go from 0 to 3; expected 0 to 2"),
        ("test_labels", np.array([0, 1, 2, -1]), "go from -1 to 2; expected 0 to 2"),
    ],
)
def test_what_does_not_fit_together_is_an_error(data, field, value, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(data, **{field: value})
