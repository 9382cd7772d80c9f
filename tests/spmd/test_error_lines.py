"""Errors of a step that fails while it runs: the lines and scopes of plain TensorFlow and Keras."""

import contextlib
import functools
import re

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf

X = np.ones((8, 2), "float32")
LABELS = np.where(np.arange(8) == 6, 7, 0)  # the seventh is out of range


@functools.cache
def strategy_of(name):
    if name == "shards":
        return kdist.MirroredStrategy(["CPU:0"], shards=2)
    return kdist.MirroredStrategy(replicas=int(name)) if name else None


def infinite(x, message):
    with tf.name_scope("mine"):
        return tf.debugging.check_numerics(x / (x * 0), message)


def asserted(x):
    with tf.name_scope("mine"):
        tf.debugging.assert_less(x, 1.0, message="too large")
    return x


def numbers(x):
    return infinite(x, "a step")


def shapes(x):
    with tf.name_scope("mine"):
        size = tf.cast(tf.reduce_sum(x), "int32")
        return tf.reshape(tf.ones([size, 3]), [7, -1])


def loop(x):
    def body(i, v):
        return i + 1, infinite(v, "a loop")

    return tf.while_loop(lambda i, _: i < 3, body, (0, x))[1]


def condition(x):
    return tf.cond(tf.reduce_sum(x) > 1, lambda: infinite(x, "a branch"), lambda: x)


def function(x):
    @tf.function
    def inner(y):
        return infinite(y, "a function")

    return inner(x)


def function_again(x):
    @tf.function
    def divided(y, z):
        with tf.name_scope("mine"):
            return tf.debugging.check_numerics(y / z, "called again")

    return divided(divided(x, tf.ones_like(x)), x * 0)


def gradient(x):
    @tf.custom_gradient
    def identity(y):
        return y * 1, lambda g: infinite(g, "a gradient")

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = identity(x)
    return tape.gradient(y, x)


def printed(x):
    tf.print(infinite(tf.reduce_sum(x), "printed"))
    return x


STEPS = (asserted, numbers, shapes, loop, condition, function, function_again, gradient, printed)


def run_step(step, strategy):
    data = tf.data.Dataset.from_tensor_slices(X).batch(8)
    if strategy:
        data = strategy.experimental_distribute_dataset(data)

    @tf.function(autograph=False)
    def call(x):
        return strategy.run(step, (x,)) if strategy else step(x)  # a line: frames are the same

    return call(next(iter(data)))


class Checked(keras.layers.Layer):
    def call(self, x):
        return infinite(x, "a layer") + self.bias

    def build(self, shape):
        self.bias = self.add_weight(shape=(2,), name="bias")


def fit_labels(strategy):
    fit(strategy, keras.layers.Dense(3, name="head"), LABELS)


def fit_layer(strategy):
    fit(strategy, Checked(name="checked"), LABELS * 0)


def fit_own_step(strategy):
    class Own(keras.Model):
        def train_step(self, data):
            tf.debugging.assert_greater(data[1], data[1], message="labels")
            return super().train_step(data)

    fit(strategy, keras.layers.Dense(3, name="head"), LABELS * 0, Own)


def fit(strategy, layer, labels, cls=keras.Model, **options):
    with strategy.scope() if strategy else contextlib.nullcontext():
        inputs = keras.Input((2,))
        model = cls(inputs, layer(inputs), name="net")
        model.compile("sgd", "sparse_categorical_crossentropy", **options)
    model.fit(X, labels, batch_size=8, shuffle=False, verbose=0)


FITS = {
    fit_labels: "compile_loss/",
    fit_layer: "net_1/checked_1/mine/",
    fit_own_step: "assert_greater",
}


@functools.cache
def message(case, name):
    """Return the error message of a case, on plain TensorFlow or under a strategy."""
    strategy = strategy_of(name)
    run = case if case in FITS else functools.partial(run_step, case)
    with pytest.raises(tf.errors.OpError) as error:
        run(strategy)
    return str(error.value)


def frames(text):
    return re.findall(r'File "(.*)", line (\d+), in (\S+)', text)


def operations(text):
    return re.findall(r"Detected at node (\S+) defined", text)


@pytest.mark.parametrize("name", [pytest.param("1", marks=pytest.mark.slow), "2", "shards"])
@pytest.mark.parametrize("case", [*STEPS, *FITS], ids=lambda case: case.__name__)
def test_an_error_shows_the_lines_and_scope_of_one_device(case, name):
    plain, own = message(case, ""), message(case, name)
    assert frames(own) == frames(plain)
    scope = FITS.get(case, "mine/")
    assert [scope in operation for operation in operations(own)] == [True]
    assert len(own.splitlines()) <= len(plain.splitlines()) + 1


def test_a_row_count_that_differs_names_the_user_s_line():
    def step(x):
        whole = tf.ones([tf.cast(tf.reduce_max(x), "int32") * 5, 2])
        return x + whole

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        run_step(step, strategy_of("2"))
    assert frames(str(error.value))[-1][2] == "step"


class Text(Checked):
    def call(self, x):
        return x + tf.strings.to_number(tf.strings.as_string(x)) + self.bias


@pytest.mark.parametrize("name", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_an_operation_that_xla_cannot_compile_has_the_lines_of_one_device(name):
    def text(strategy):
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            fit(strategy, Text(name="text"), LABELS * 0, jit_compile=True)
        return str(error.value)

    plain, own = text(None), text(strategy_of(name))
    assert frames(own) == frames(plain)
    assert frames(own)[-1][2] == "call"
    assert len(own.splitlines()) <= len(plain.splitlines()) + 1


def test_an_error_that_tensorflow_loses_tells_how_to_find_it():
    strategy = kdist.MirroredStrategy(replicas=2, shards=2)
    with pytest.raises(tf.errors.OpError, match=r"run on one device|a gradient"):
        run_step(gradient, strategy)
