"""An iterator that is done is freed aside, and neither an epoch nor a fit waits for it."""

import contextlib
import subprocess
import sys
import threading

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist._upstream import iterators
from kdist._upstream.iterators import release_in_background

pytestmark = pytest.mark.usefixtures("iterators_as_made")


@contextlib.contextmanager
def late_batches():
    """The first batch of a generator that gives no second one before the test is over."""
    late = threading.Event()
    giving_up = threading.Timer(60, late.set)  # so that a wait fails and does not last
    giving_up.daemon = True
    giving_up.start()

    def batches():
        yield np.zeros((4, 2), "float32")
        late.wait()
        yield np.zeros((4, 2), "float32")

    spec = tf.TensorSpec((4, 2), tf.float32)
    try:
        yield tf.data.Dataset.from_generator(batches, output_signature=spec).prefetch(1)
        assert not late.is_set(), "somebody waited"
    finally:
        giving_up.cancel()
        late.set()


def numbers_until(freed):
    """Numbers whose generator sets the event `freed` when it is let go."""

    def numbers():
        try:
            yield from range(3)
        finally:
            freed.set()

    return tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int32))


def test_letting_go_of_an_iterator_does_not_wait():
    with late_batches() as dataset:
        iterator = iter(dataset)
        release_in_background(iterator)
        next(iterator)
        del iterator


def test_an_iterator_is_freed_while_another_is_waited_for():
    freed = threading.Event()
    with late_batches() as late:
        for dataset in (late, numbers_until(freed)):
            iterator = iter(dataset)
            release_in_background(iterator)
            next(iterator)
            del iterator
        assert freed.wait(50)


def test_an_iterator_is_freed_at_once_where_no_thread_can_be_had(monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("_thread.start_new_thread", refused)
    freed = threading.Event()
    iterator = iter(numbers_until(freed))
    release_in_background(iterator)
    next(iterator)
    del iterator
    assert freed.is_set()
    iterators.join_releases()  # for none that never began


def test_python_ends_after_what_is_being_freed():
    script = """
import atexit, threading
from kdist._upstream.iterators import release_in_background
import tensorflow as tf

late = threading.Event()
atexit.register(late.set)  # called before what was registered by the import above

def numbers():
    try:
        yield 1
        late.wait()
        yield 2
    finally:
        print("freed")

dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int32))
iterator = iter(dataset.prefetch(1))
release_in_background(iterator)
next(iterator)
del iterator
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_fit_does_not_wait_for_what_it_does_not_need(replicas):
    model = kdist.MirroredStrategy(replicas=replicas).build(
        lambda: keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    )
    model.compile("sgd", "mse")
    with late_batches() as dataset:
        pairs = dataset.map(lambda x: (x, x[:, :1]))
        model.fit(pairs, steps_per_epoch=1, shuffle=False, verbose=0)
        model.evaluate(pairs, steps=1, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 1


def test_a_dataset_is_read_to_its_end_every_epoch():
    model = kdist.MirroredStrategy(replicas=2).build(
        lambda: keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    )
    model.compile("sgd", "mse")
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros((10, 2)), np.zeros((10, 1)))).batch(4)
    model.fit(dataset, epochs=3, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 9
