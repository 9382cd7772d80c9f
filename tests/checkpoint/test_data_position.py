"""A fit that begins amid its data trains what the uninterrupted one does from there on."""

import functools
import re

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist._upstream.fit import start_fit_at
from kdist.data import training_batches
from keras.src.backend.common import global_state
from recorded_fits import Position, Recorder, assert_same, record, steps_of, trained_from
from replicas import assert_equal

COUNT = 21  # six batches of four, of which the last has one
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 6, 8, 1), np.uint8)


@functools.cache  # what was iterated over before must not matter
def own():
    return training_batches(
        IMAGES, np.arange(COUNT), batch_size=4, seed=1, standardization=lambda batch: batch
    )


def arrays():
    return np.arange(COUNT, dtype="float32")


def numbers():
    return tf.data.Dataset.range(COUNT).shuffle(7, seed=4)


def drawn(x):
    return tf.cast(x, tf.float32) + tf.random.uniform([], seed=3)


def generator():
    draws = np.random.default_rng(3)
    while True:
        yield (draws.normal(size=(4, 1)),)


class Files(keras.utils.PyDataset):
    """Keeps the index of each batch that is computed."""

    def __init__(self, **options):
        super().__init__(**options)
        self.computed = []

    @property
    def num_batches(self):
        return 6

    def __getitem__(self, index):
        self.computed.append(index)
        return (np.full((4, 1), index, "float32"),)


class Endless(Files):
    num_batches = None


class Reordered(Files):
    """Another order in each epoch."""

    def __init__(self, **options):
        super().__init__(**options)
        self._draws = np.random.default_rng(1)
        self.on_epoch_end()

    def __getitem__(self, index):
        return (self._order[4 * index :][:4],)

    def on_epoch_end(self):
        self._order = self._draws.permutation(COUNT).astype("float32")[:, None]


def from_generator():
    draws = np.random.default_rng(2)

    def rows():
        for _ in range(6):
            yield draws.normal(size=(4, 1))

    return tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((4, 1), tf.float64))


def with_generator():
    draws = tf.random.Generator.from_seed(1)
    return numbers().map(lambda x: tf.cast(x, tf.float32) + draws.uniform([])).batch(4)


EVERY_FOUR = {"steps_per_epoch": 4}
KINDS = {
    "own": (own, {}),
    "own, mapped": (lambda: own().map(lambda x, y: (x + 1, y)), {}),
    "own, repeated": (lambda: own().repeat(), EVERY_FOUR),
    "own, repeated twice": (lambda: own().repeat(2), {}),
    "own, cached": (lambda: own().cache(), {}),
    "own, read on": (own, EVERY_FOUR),
    "arrays": (arrays, {"batch_size": 4}),
    "arrays in order": (arrays, {"batch_size": 4, "shuffle": False}),
    "arrays, batches shuffled": (arrays, {"batch_size": 4, "shuffle": "batch"}),
    "arrays, read on": (arrays, {"batch_size": 4} | EVERY_FOUR),
    "tf.data": (lambda: numbers().batch(4), {}),
    "tf.data, read on": (lambda: numbers().batch(4), EVERY_FOUR),
    "tf.data, drawn": (lambda: numbers().map(drawn).batch(4), {}),
    "tf.data, drawn by a generator": (with_generator, {}),
    "tf.data, in epochs of all batches": (lambda: numbers().batch(4), {"steps_per_epoch": 6}),
    "tf.data, drawn by a generator, the same": (with_generator, {"steps_per_epoch": 6}),
    "tf.data, cached": (lambda: numbers().batch(4).cache(), {}),
    "tf.data, repeated twice": (lambda: numbers().repeat(2).batch(4), {}),
    "tf.data, repeated": (lambda: numbers().repeat().batch(4), EVERY_FOUR),
    "tf.data, filtered": (lambda: numbers().filter(lambda x: x < 17).batch(4), {}),
    "tf.data from a generator": (from_generator, {}),
    "generator": (generator, EVERY_FOUR),
    "PyDataset": (Reordered, {}),
    "PyDataset in order": (Reordered, {"shuffle": False}),
    "PyDataset, read on": (Files, EVERY_FOUR),
    "PyDataset with workers": (lambda: Reordered(workers=2), {}),
    "PyDataset without end": (Endless, EVERY_FOUR),
    "PyDataset without end, with workers": (lambda: Endless(workers=2), EVERY_FOUR),
}
ON_REPLICAS = ["own", "own, read on", "arrays", "tf.data, filtered", "generator", "PyDataset"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_begins_amid_its_data(kind):
    make, options = KINDS[kind]
    options = options | {"epochs": 3}
    whole, _ = record(make, **options)
    for start in [(0, 3), (2, 1)]:
        seen, _ = record(make, start=start, **options)
        assert_same(seen, trained_from(whole, start))


@pytest.mark.parametrize("kind", ON_REPLICAS)
def test_a_fit_on_replicas_begins_amid_its_data(kind):
    make, options = KINDS[kind]
    options = options | {"strategy": kdist.MirroredStrategy(replicas=2), "epochs": 3}
    whole, _ = record(make, **options)
    seen, _ = record(make, start=(1, 2), **options)
    assert_same(seen, trained_from(whole, (1, 2)))


@pytest.mark.parametrize("kind", ["own", "arrays", "tf.data", "PyDataset"])
def test_a_fit_begins_at_the_end_or_the_beginning_of_an_epoch(kind):
    make, options = KINDS[kind]
    options = options | {"epochs": 3}
    whole, _ = record(make, **options)
    for start in [(0, 6), (1, 0)]:
        seen, _ = record(make, start=start, **options)
        assert_same(seen, trained_from(whole, (1, 0)))


def test_executions_of_several_steps_begin_where_they_are_asked_to():
    """Also where the training before took fewer at a time."""
    whole, _ = record(own)
    seen, _ = record(own, start=(1, 3), steps_per_execution=2)
    rows = [rows for step, rows in trained_from(whole, (1, 3)) if isinstance(step, str)]
    found = [rows for step, rows in seen if isinstance(step, str)]
    assert_equal(found, rows)
    assert steps_of(seen)[:3] == [(1, 3), (1, 5), (2, 0)]


@pytest.mark.parametrize("kind", ["own", "tf.data", "own, read on"])
def test_epochs_count_from_the_first_that_the_fit_was_asked_for(kind):
    make, options = KINDS[kind]
    whole, _ = record(make, initial_epoch=1, **options)
    seen, _ = record(make, start=(2, 1), initial_epoch=1, **options)
    assert_same(seen, trained_from(whole, (2, 1)))


def test_the_first_epoch_may_be_before_the_one_that_the_fit_was_asked_for():
    assert_same(record(own, start=(0, 5), initial_epoch=2)[0], trained_from(record(own)[0], (0, 5)))


def test_the_next_fit_begins_at_its_beginning():
    model = Recorder()
    model.compile(run_eagerly=True)
    for start, first in [((2, 4), (2, 4)), (None, (0, 0))]:
        model.seen.clear()
        model.fit(own(), epochs=3, shuffle=False, verbose=0, callbacks=[Position(start)])
        assert steps_of(model.seen)[0] == first


def test_no_batch_is_computed_that_is_not_wanted():
    files = []

    def make():
        files.append(Files())
        return files[-1]

    record(make, start=(2, 4), shuffle=False)
    # Keras computes two to learn their shapes.
    assert files[0].computed[2:] == [4, 5, 0, 1, 2, 3, 4, 5]


def unseeded():
    tf.random.set_seed(None)
    return tf.data.Dataset.range(COUNT).shuffle(7).batch(4)


def unseeded_in_a_function():
    tf.random.set_seed(None)
    return (
        tf.data.Dataset.range(1)
        .flat_map(lambda _: tf.data.Dataset.range(COUNT).shuffle(7))
        .batch(4)
    )


def unseeded_draws():
    tf.random.set_seed(None)
    return numbers().map(lambda x: tf.cast(x, tf.float32) + tf.random.uniform([])).batch(4)


def unseeded_arrays():
    tf.random.set_seed(None)
    return arrays()


SENTENCES = {
    "seeded": (lambda: numbers().batch(4), {}, None),
    "own": (own, {}, None),
    "own, mapped": (lambda: own().map(lambda x, y: (x + 1, y)), {}, None),
    "arrays": (arrays, {}, None),
    "arrays in order": (unseeded_arrays, {"shuffle": False}, None),
    "table": (lambda: numbers().batch(4).map(keras.layers.IntegerLookup(vocabulary=[1])), {}, None),
    "by tf.random.set_seed": (lambda: tf.data.Dataset.range(9).shuffle(7).batch(4), {}, None),
    "arrays without a seed": (unseeded_arrays, {}, "The data are shuffled without a seed"),
    "without a seed": (unseeded, {}, "it draws random numbers without a seed"),
    "in a function": (unseeded_in_a_function, {}, "it draws random numbers without a seed"),
    "draws": (unseeded_draws, {}, "it draws random numbers without a seed"),
    "parallel": (
        lambda: numbers().map(drawn, num_parallel_calls=2).batch(4),
        {},
        "it draws random numbers in a parallel map",
    ),
    "no order": (
        lambda: numbers().map(lambda x: x, num_parallel_calls=2, deterministic=False).batch(4),
        {},
        r"it does not keep an order \(deterministic=False\)",
    ),
    "Python": (from_generator, {}, "if the data give the same batches in every run"),
    "generator": (generator, EVERY_FOUR, "if the data give the same batches in every run"),
    "PyDataset": (Files, {}, "if the data give the same batches in every run"),
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_it_is_said_what_is_not_exact(kind):
    make, options, expected = SENTENCES[kind]
    _, sentence = record(make, start=(0, 1), **(options | {"epochs": 1}))
    assert (sentence is None) == (expected is None), sentence
    assert expected is None or re.search(expected, sentence)


def test_a_py_dataset_that_is_shuffled_without_a_seed(monkeypatch):
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: None)
    global_state.set_global_attribute("global_random_seed", None)
    assert "shuffled without a seed" in record(Files, start=(0, 1), epochs=1)[1]
    assert "give the same" in record(Files, start=(0, 1), epochs=1, shuffle=False)[1]


def test_without_a_fit_it_is_said_when_to_call_it():
    with pytest.raises(RuntimeError, match="call `start_fit_at` in `on_train_begin`"):
        start_fit_at(Recorder(), epoch=1, batch=0)
