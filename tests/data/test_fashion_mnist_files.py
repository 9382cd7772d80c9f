"""The embedded sample, and the full set where this machine has it."""

import hashlib
from importlib import resources

import kdist.data
import numpy as np
import pytest
from kdist.data.fashion_mnist_files import missing_files, read_folder, read_sample
from kdist.data.fashion_mnist_sources import DEBIAN
from kdist.data.sources import keras_datasets

FOLDER = resources.files("kdist.data")


def test_the_sample_has_the_promised_form():
    sample = read_sample()
    assert sample.train_images.shape == (10_000, 28, 28, 1)
    assert sample.test_images.shape == (2_000, 28, 28, 1)
    assert sample.train_images.dtype == sample.test_images.dtype == np.uint8
    assert sample.train_labels.shape == (10_000,)
    assert sample.test_labels.shape == (2_000,)
    assert set(sample.train_labels) == set(sample.test_labels) == set(range(10))
    assert sample.classes == 10
    assert sample.class_names[9] == "Ankle boot"
    with (FOLDER / "fashion_mnist_sample.npz").open("rb") as file:
        assert len(file.read()) <= 6_000_000


@pytest.mark.parametrize(
    ("part", "sha256"),
    # zcat train-images-idx3-ubyte.gz | tail -c +17 | head -c 7840000 | sha256sum, and so on
    [
        ("train_images", "2929ae1c7b89e0ee6587bbe4911fd5f0a5dafe21ae6ed9b737173cbfe20c12c9"),
        ("train_labels", "1022e4632874e71bb84d924c475e6a3428a2deeb8c5a0f612a015c97e4fce7f0"),
        ("test_images", "09bbac78738f0229a68f7ca74e62665d7fb34f45ea7a3509ab5c4a202c1370de"),
        ("test_labels", "a86243d2b2400909bc0a82f5fd5c9df83bf827852a1543e3dc70af890035a9d4"),
    ],
)
def test_the_sample_is_the_beginning_of_the_published_files(part, sha256):
    content = getattr(read_sample(), part).astype(np.uint8).tobytes()
    assert hashlib.sha256(content).hexdigest() == sha256


def test_the_sample_is_the_beginning_of_the_full_set():
    folder = next(
        (
            place
            for place in (keras_datasets() / "fashion-mnist", DEBIAN)
            if not missing_files(place)
        ),
        None,
    )
    if folder is None:
        pytest.skip("the full Fashion-MNIST is neither in the Keras cache nor installed")
    full, sample = read_folder(folder), read_sample()
    assert len(full.train_images) == 60_000
    assert len(full.test_images) == 10_000
    np.testing.assert_array_equal(sample.train_images, full.train_images[:10_000])
    np.testing.assert_array_equal(sample.train_labels, full.train_labels[:10_000])
    np.testing.assert_array_equal(sample.test_images, full.test_images[:2_000])
    np.testing.assert_array_equal(sample.test_labels, full.test_labels[:2_000])


def test_the_notice_lies_beside_the_sample():
    notice = (FOLDER / "fashion_mnist_sample.LICENSE").read_text(encoding="utf-8")
    assert "MIT License" in notice
    assert "Zalando SE" in notice
    assert "Permission is hereby granted" in notice


def test_the_public_names():
    assert sorted(kdist.data.__all__) == [
        "ColorJitter",
        "ImageData",
        "RandomAffine",
        "RandomBrightness",
        "RandomContrast",
        "RandomCrop",
        "RandomCutout",
        "RandomHorizontalFlip",
        "Standardization",
        "center_crop",
        "cifar10",
        "evaluation_batches",
        "fashion_mnist",
        "random_flip_and_shift",
        "training_batches",
    ]
    for name in kdist.data.__all__:
        assert callable(getattr(kdist.data, name))
