"""Batch k of epoch e is a function of the seed, e and k, whatever else is iterated over."""

import itertools

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.data import training_batches

COUNT = 21
IMAGES = np.arange(COUNT, dtype=np.uint8).reshape(-1, 1, 1, 1)


def make(**options):
    defaults = {"batch_size": 4, "seed": 1, "standardization": lambda batch: batch}
    return training_batches(IMAGES, np.arange(COUNT), **(defaults | options))


@pytest.fixture(scope="module")
def passes():
    """The labels of the first epochs, as an iteration outside of `fit` gives them."""
    batches = make()
    return [labels(batches) for _ in range(3)]


def joined(epochs):
    return list(itertools.chain.from_iterable(epochs))


def labels(batches):
    return [int(label) for _, batch in batches for label in batch]


class Recorder(keras.Model):
    """Keeps the labels that it is given to train on."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def call(self, x):
        return x

    def train_step(self, data):
        self.seen += [int(label) for label in data[1]]
        return {"loss": tf.constant(0.0)}

    def test_step(self, data):
        return {"loss": tf.constant(0.0)}


def fit(batches, *, strategy=None, steps_per_execution=1, **options):
    with (strategy or tf.distribute.get_strategy()).scope():
        model = Recorder()
        model.compile(run_eagerly=True, steps_per_execution=steps_per_execution)
    model.fit(batches, verbose=0, shuffle=False, **options)
    return model.seen


@pytest.mark.parametrize("strategy", ["none", "kdist", "tf.distribute"])
def test_a_fit_trains_the_epochs_that_it_is_asked_for(passes, strategy):
    strategies = {"none": tf.distribute.get_strategy, "kdist": kdist.MirroredStrategy}
    under = strategies.get(strategy, tf.distribute.MirroredStrategy)
    batches = make()
    under = under() if strategy == "none" else under(["/cpu:0"])
    next(iter(batches))  # outside of a fit
    for first, last in [(0, 2), (2, 3)]:
        seen = fit(batches, strategy=under, initial_epoch=first, epochs=last)
        assert seen == joined(passes[first:last])


@pytest.mark.parametrize(
    "options",
    [
        {"steps_per_execution": 4},
        {"class_weight": dict.fromkeys(range(COUNT), 1.0)},
        {"validation_data": "the same"},
    ],
)
def test_the_options_of_a_fit_change_nothing(passes, options):
    batches = make()
    if "validation_data" in options:
        options = options | {"validation_data": batches}
    assert fit(batches, epochs=2, **options) == joined(passes[:2])


def test_what_is_made_of_it_has_its_epochs(passes):
    batches = make().map(lambda x, y: (x, y + 100)).prefetch(2)
    next(iter(batches))
    assert fit(batches, epochs=2) == [label + 100 for label in joined(passes[:2])]


class Iterates(keras.callbacks.Callback):
    """Iterates over data wherever a callback can, and keeps what it is given."""

    def __init__(self, batches):
        super().__init__()
        self.batches, self.seen = batches, []

    def on_epoch_begin(self, epoch, logs=None):
        self.seen.append((epoch, labels(self.batches)))

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append((epoch, labels(self.batches)))

    def on_train_batch_begin(self, batch, logs=None):
        next(iter(self.batches))

    def on_train_batch_end(self, batch, logs=None):
        next(iter(self.batches))


def test_other_iterations_leave_a_fit_alone_and_see_its_epoch(passes):
    batches = make()
    other = Iterates(batches)
    assert fit(batches, epochs=2, callbacks=[other]) == joined(passes[:2])
    assert other.seen == [(epoch, passes[epoch]) for epoch in (0, 0, 1, 1)]
    assert labels(batches) == passes[0]  # counted from its own beginning
    assert labels(batches) == passes[1]


def test_a_fit_within_a_fit_leaves_it_alone(passes):
    batches, inner = make(), []

    class Fits(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                inner.append(fit(batches, initial_epoch=2, epochs=3))

    assert fit(batches, epochs=2, callbacks=[Fits()]) == joined(passes[:2])
    assert inner == [passes[2], passes[2]]


def test_a_fit_that_fails_lets_go_of_the_data(passes):
    batches = make()

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fit(batches, initial_epoch=2, epochs=3, callbacks=[Fails()])
    assert [labels(batches) for _ in range(2)] == passes[:2]


@pytest.mark.parametrize("repeated", [False, True])
def test_epochs_that_one_iterator_gives_are_counted(passes, repeated):
    batches = make().repeat() if repeated else make()
    assert fit(batches, steps_per_epoch=6, epochs=2) == joined(passes[:2])


def test_iterators_that_live_at_the_same_time_give_an_epoch_each(passes):
    batches = make()
    pairs = [
        (batch.numpy().tolist(), later_batch.numpy().tolist())
        for (_, batch), (_, later_batch) in zip(batches, batches, strict=True)
    ]
    assert [joined(epoch) for epoch in zip(*pairs, strict=True)] == passes[:2]


def test_a_pipeline_made_in_a_scope_is_the_same(passes):
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        batches = make()
    assert labels(batches) == passes[0]
    shared = strategy.experimental_distribute_dataset(batches)
    parts = [strategy.experimental_local_results(batch[1]) for batch in shared]
    assert [int(label) for part in parts for rows in part for label in rows] == passes[1]


def test_the_seed_of_tensorflow_changes_nothing(passes):
    tf.random.set_seed(123)
    assert labels(make()) == passes[0]
