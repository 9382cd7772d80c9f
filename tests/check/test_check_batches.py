"""Samples reach a step as `fit` passes them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.check.arrays import fingerprint
from kdist.check.batches import batches_of
from kdist.check.causes.data import check_data, check_samples
from kdist.check.check import Check, as_build
from kdist.check.explanation import explain
from kdist.check.options import CheckOptions
from kdist.check.precision import Precision
from kdist.check.record import Record
from kdist.check.training import Trained
from kdist.check.workers import OTHER_SAMPLES

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


def test_ragged_batches_stay_ragged():
    rows = tf.ragged.constant([[1.5], [2.0, 3.0], [], [4.0]] * 5, dtype="float32")
    data = tf.data.Dataset.from_tensor_slices((rows, Y)).batch(8)
    batches = batches_of(data, OWN).in_float64()
    (first, _), (last, _) = batches.dataset()
    assert (first.dtype, first.to_list()) == (tf.float64, rows[:8].to_list())
    assert last.to_list() == rows[8:13].to_list()
    assert batches.rows(1, 3)[0].to_list() == rows[1:3].to_list()
    assert fingerprint(batches.arrays) != fingerprint(batches_of(data.skip(1), OWN).arrays)


class Gives(keras.utils.PyDataset):
    """The same samples, or others, each time that it is read."""

    read = 0

    def __init__(self, is_same):
        super().__init__()
        self.is_same = is_same

    def __len__(self):
        return 2

    def __getitem__(self, index):
        Gives.read += not self.is_same
        return X + index + Gives.read, Y


def drawn_anew():
    return np.random.default_rng().normal(size=X.shape), Y


@pytest.mark.parametrize(
    ("data", "causes"),
    [
        ((X, Y), []),
        (lambda: (X, Y), []),
        (lambda: Gives(True), []),
        (lambda: tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(20, seed=1).batch(4), []),
        (drawn_anew, ["data_without_seed"]),
        (lambda: Gives(False), ["data_differ_each_time"]),
    ],
)
def test_data_are_made_and_read_twice(data, causes):
    assert [cause.name for cause in check_data(data, OWN)] == causes


def test_samples_that_another_process_has_not_are_drawn_without_a_seed():
    workers = [Trained(record=Record(name="2 workers of kdist", error=OTHER_SAMPLES))]
    assert check_samples(drawn_anew, [Trained(record=Record(name="2 replicas"))]) == []
    (cause,) = check_samples(drawn_anew, workers)
    assert cause.name == "data_without_seed"
    assert "np.random.default_rng().normal" in cause.line
    plan = Check(of_hp, (X, Y), OWN, strategies=()).plan("float64")
    one = Trained(record=Record(name="one"))
    precision = Precision(level="float64", asked="float64")
    compared, causes = explain(plan, one, workers, precision)
    assert [training.error for training in compared] == [OTHER_SAMPLES]
    assert causes == []


def of_hp(hp):
    return hp.Int("units", 4, 8)


def perhaps_of_hp(hp=None):
    return hp.Int("units", 4, 8)


def of_another_name(h):
    return h.Int("units", 4, 8)


@pytest.mark.parametrize("build", [of_hp, perhaps_of_hp, of_another_name])
def test_a_build_with_hyperparameters_gets_them(build):
    assert as_build(build)() == 4
