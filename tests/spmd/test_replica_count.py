"""`num_replicas_in_sync` that is read before a step and used in it."""

import copy
import json
import pickle

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.checkpoint.variable_values import to_json
from replicas import divide

X = np.arange(12.0).reshape(6, 2)


@pytest.fixture(scope="module")
def strategy():
    return kdist.MirroredStrategy(replicas=2)


def traced_sum(strategy, function):
    """Run a function of the rows in a step; return the sum of its result."""

    def step(x):
        return tf.reduce_sum(tf.cast(function(x), tf.float64))

    run = tf.function(lambda x: strategy.run(step, args=(x,)), autograph=False)
    return float(run(divide(strategy, X)))


def uses(n):
    """Return functions of a step that use the number of replicas, and the sums of their results."""
    rows, share = 6 // n, 1 / n
    return {
        "quotient": (lambda x: x / n, X.sum() / 2),
        "product": (lambda x: n * x, X.sum() * 2),
        "share": (lambda x: x * (3 * share), X.sum() * 1.5),
        "difference": (lambda x: x * (n - 1), X.sum()),
        "of Keras": (lambda x: keras.ops.divide(x, n), X.sum() / 2),
        "average": (lambda x: tf.nn.compute_average_loss(x[:, 0], global_batch_size=n), 15.0),
        "ones": (lambda x: tf.ones((rows, 1)), 3.0),
        "many zeros": (lambda x: 1.0 - tf.zeros([rows * 1000]), 3000.0),
        "ones of Keras": (lambda x: keras.ops.ones((rows, 2)), 6.0),
        "shape": (lambda x: tf.reshape(x, (rows, -1))[:, 0], 0.0 + 4.0 + 8.0),
        "partly known shape": (lambda x: tf.reshape(x, (rows, tf.shape(x)[1] * 2)), X.sum()),
        "noise": (lambda x: 0 * keras.random.normal((rows, 2), seed=1), 0.0),
    }


@pytest.mark.parametrize("name", uses(1))
def test_a_number_of_replicas_from_outside_is_told_and_stays_what_it_is(strategy, name, caplog):
    function, expected = uses(strategy.num_replicas_in_sync)[name]
    for _ in range(2):
        assert traced_sum(strategy, function) == pytest.approx(expected)
    (message,) = caplog.messages
    assert "num_replicas_in_sync is 1" in message
    assert f'"{name}": (lambda x: ' in message


def right(strategy):
    n = strategy.num_replicas_in_sync
    global_batch, rate, rows = 3 * n, 0.1 * n, 6 // n
    rescaling = keras.layers.Rescaling(1 / n)
    return {
        "global batch size": (lambda x: tf.reduce_sum(x) * (1 / global_batch), X.sum() / 6),
        "learning rate": (lambda x: x * rate, X.sum() * 0.2),
        "share of all": (lambda x: tf.ones((rows * n, 1)), 6.0),
        "meant": (lambda x: x / int(rows) * float(1 / n), X.sum() / 6),
        "read in the step": (lambda x: x / strategy.num_replicas_in_sync, X.sum()),
        "default strategy": (
            lambda x: x / tf.distribute.get_strategy().num_replicas_in_sync,
            X.sum(),
        ),
        "setting of a layer": (rescaling, X.sum() / 2),
        "loop": (lambda x: sum(x for _ in range(n)), X.sum() * 2),
    }


@pytest.mark.parametrize("name", right(tf.distribute.get_strategy()))
def test_correct_uses_of_the_number_are_not_told(strategy, name, caplog):
    function, expected = right(strategy)[name]
    assert traced_sum(strategy, function) == pytest.approx(expected)
    assert not caplog.messages


class DoublingWarmUp(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, step):
        return 0.25 * tf.minimum(tf.cast(step + 1, tf.float32) / self.steps, 1.0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_schedule_made_with_the_number_of_replicas_is_not_told(replicas, caplog):
    strategy = kdist.MirroredStrategy(replicas=replicas)
    n = strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.SGD(DoublingWarmUp(4 // n), clipnorm=4 / n), "mse")
        model.set_weights([np.zeros((2, 1))])
    model.fit(X, X[:, 0], batch_size=6, verbose=0)
    assert not caplog.messages
    # The norm of the gradient is clipped to 4 / n, and the rate is 0.25 of 1 in 4 / n steps.
    assert np.linalg.norm(model.get_weights()[0]) == pytest.approx(4 / n * 0.25 * n / 4)


@pytest.mark.parametrize("fits", [True, False])
def test_a_step_of_a_model_is_told_of_the_line_that_uses_the_number(fits, caplog):
    strategy = kdist.MirroredStrategy(replicas=2)
    n = strategy.num_replicas_in_sync

    class Halved(keras.Model):
        def train_step(self, data):
            half = tf.reduce_sum(data) / n
            return {"half": half}

    with strategy.scope():
        model = Halved()
        model.compile()

    @tf.function  # AutoGraph converts the step
    def run(x):
        return strategy.run(model.train_step, args=(x,))["half"]

    if fits:
        losses = model.fit(X, batch_size=6, verbose=0).history["half"]
    else:
        data = tf.data.Dataset.from_tensor_slices(X).batch(6)
        losses = [float(run(x)) for x in strategy.experimental_distribute_dataset(data)]
    assert losses == [X.sum() / 2]
    (message,) = caplog.messages
    assert message.endswith("half = tf.reduce_sum(data) / n")


def test_outside_a_step_the_number_is_a_plain_one(strategy):
    n = strategy.num_replicas_in_sync
    for value in (n, 6 // n, 7 % n, n + 1, n - 1, 1 / n, n / 4, 3 * (1 / n)):
        plain = value.real
        assert type(plain) is type(json.loads(json.dumps(value))) is type(copy.deepcopy(value))
        assert type(pickle.loads(pickle.dumps(value))) is type(plain)
        assert (value, hash(value), f"{value} {value!r}") == (
            plain,
            hash(plain),
            f"{plain} {plain}",
        )
        assert type(to_json({"replicas": value}, name="callback", arrays={})["replicas"]) in (
            int,
            float,
        )
        for array in (np.float32(3), np.ones(2, "float16"), np.int8(3), tf.ones(2, tf.bfloat16)):
            if plain == int(plain) or not isinstance(array, np.int8):
                assert (array * value).dtype == (array * plain).dtype
        for made in (np.asarray, tf.constant, keras.ops.convert_to_tensor):
            assert made(value).dtype == made(plain).dtype
        for dtype in ("bfloat16", "float32", "int8"):
            row = keras.ops.ones(2, dtype)
            assert keras.ops.add(row, value).dtype == keras.ops.add(row, plain).dtype
    assert type(n * 32) is type(6 // n * n) is int
    assert type(0.1 * n) is float
    assert [*range(n)] == [0, 1]
    assert [0] * (4 // n) == [0, 0]
    assert tf.function(lambda x, n: x * n)(tf.constant(3), n) == 6
    config = keras.layers.Dense.from_config(json.loads(json.dumps({"units": 4 // n})))
    assert config.units == 2
    assert next(iter(tf.data.Dataset.range(4).batch(4 // n))).shape == (2,)


def test_the_number_of_a_single_replica_is_plain():
    assert type(kdist.MirroredStrategy(replicas=1).num_replicas_in_sync) is int
