"""Samples reach a step as `fit` passes them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.check.batches import batches_of
from kdist.check.check import as_build
from kdist.check.options import CheckOptions

X, Y = np.arange(60.0).reshape(20, 3), np.arange(20)
OPTIONS = CheckOptions(replicas=(2,), steps=2, batch_size=8)
OWN = CheckOptions(replicas=(2,), steps=2)


class Steps(keras.Model):
    """Keeps what its steps get."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def train_step(self, data):
        self.seen.append(keras.tree.map_structure(lambda leaf: leaf.dtype.name, data))
        return {"loss": tf.zeros(())}


class Images(keras.utils.PyDataset):
    """Batches without targets."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return X[8 * index : 8 * index + 8]


def passed(*data, **options):
    """What a step gets of a fit."""
    model = Steps()
    model.compile(run_eagerly=True)
    named = dict(zip(("x", "y", "sample_weight"), data, strict=False))
    model.fit(**named, epochs=1, shuffle=False, verbose=0, **options)
    return model.seen[0]


DATA = {
    "arrays": (X, Y),
    "weights": (X, Y, np.ones(20)),
    "several inputs": ([X, X], Y),
    "by name": ({"a": X, "b": X}, {"c": Y}),
    "images alone": (X,),
    "images by name": ({"a": X},),
}


@pytest.mark.parametrize("name", DATA)
def test_arrays_as_fit_passes_them(name):
    data = DATA[name]
    batches = batches_of(data, OPTIONS)
    assert passed(batches.dataset()) == passed(*data, batch_size=8)


@pytest.mark.parametrize(
    "data",
    [Images(), tf.data.Dataset.from_tensor_slices((X,)).batch(8)],
    ids=["PyDataset", "tf.data"],
)
def test_batches_as_fit_passes_them(data):
    assert passed(batches_of(data, OWN).dataset()) == passed(data)


TEXTS = ["a", "b c", "dé", "a"] * 5


@pytest.mark.parametrize(
    "data",
    [
        (np.array(TEXTS, object), Y),
        (np.array(TEXTS), Y),
        tf.data.Dataset.from_tensor_slices((TEXTS, Y)).batch(8),
    ],
    ids=["objects", "texts", "tf.data"],
)
def test_texts(data):
    options = OWN if isinstance(data, tf.data.Dataset) else OPTIONS
    (texts, _), *_ = batches_of(data, options).dataset()
    assert [text.decode() for text in texts.numpy()] == TEXTS[:8]


def of_hp(hp):
    return hp.Int("units", 4, 8)


def perhaps_of_hp(hp=None):
    return hp.Int("units", 4, 8)


def of_another_name(h):
    return h.Int("units", 4, 8)


@pytest.mark.parametrize("build", [of_hp, perhaps_of_hp, of_another_name])
def test_a_build_with_hyperparameters_gets_them(build):
    assert as_build(build)() == 4
