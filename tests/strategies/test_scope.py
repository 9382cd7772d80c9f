"""Models that are made outside the scope of a strategy."""

import gc
import logging

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError

X, Y = np.ones((4, 3)), np.ones((4, 1))


def make_model(name):
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name=name)


@pytest.fixture
def warned_models(caplog):
    """The names of models that were warned of."""
    gc.collect()  # strategies of other tests
    caplog.set_level(logging.WARNING, "kdist")
    return lambda: [
        record.getMessage().split("'")[1]
        for record in caplog.records
        if "although a strategy of 2 replicas was made" in record.getMessage()
    ]


def test_fit_warns_once_of_a_forgotten_scope(warned_models):
    strategy = kdist.MirroredStrategy(replicas=2)
    model = make_model("forgotten")
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    model.fit(X, Y, verbose=0)

    assert not strategy.is_used
    assert warned_models() == ["forgotten"]


def test_fit_does_not_warn_beside_a_strategy_that_is_used(warned_models):
    strategy = kdist.MirroredStrategy(replicas=2)
    strategy.run(lambda: None)
    one = kdist.MirroredStrategy(replicas=1)
    for name, model in (
        ("plain", make_model("plain")),
        ("of_one_replica", one.build(lambda: make_model("of_one_replica"))),
    ):
        model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)
        assert name not in warned_models()


def test_a_model_that_is_compiled_in_another_scope_is_an_error():
    strategy = kdist.MirroredStrategy(replicas=2)
    model = make_model("outside")
    with strategy.scope():
        model.compile("sgd", "mse")

    with pytest.raises(UserError, match=r"'outside' was made outside the strategy's scope"):
        model.fit(X, Y, verbose=0)


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("replicas", [1, 2])
def test_an_eager_step_builds_the_model(replicas, is_inside):
    """The first step makes the variables, inside or outside of the scope."""
    strategy = kdist.MirroredStrategy(replicas=replicas)
    x = np.ones((6, 4), "float32")
    with strategy.scope():
        layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", run_eagerly=True)
        if is_inside:
            model.fit(x, x[:, :2], batch_size=3, verbose=0)
    if not is_inside:
        model.fit(x, x[:, :2], batch_size=3, verbose=0)
    for variable in model.variables:
        copies = [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
        assert len(copies) == replicas
        np.testing.assert_array_equal(copies, copies[:1] * replicas)


def fit_loss(strategy, loss, **options):
    """Return the loss of the first epoch of a model with the same weights each time."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    model.compile("sgd", loss, **options)
    rows = np.linspace(-1, 1, 96, dtype="float32").reshape(16, 6)
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :4])).batch(8, drop_remainder=True)
    return model.fit(data, shuffle=False, verbose=0).history["loss"]


def of_pairs(y, predicted):
    """Read the size of the batch, which the step has and Keras's build of the model has not."""
    pairs = tf.reshape(predicted, (predicted.shape[0] // 2, 2, 4))
    return tf.reduce_mean(tf.square(pairs[:, 0] - pairs[:, 1]))


def of_values(y, predicted):
    """Read values, as a debugger does."""
    return tf.reduce_mean(tf.square(y - predicted)) * float(predicted.numpy().shape[0])


@pytest.mark.parametrize(("loss", "eager"), [(of_pairs, False), (of_values, True)])
def test_code_that_reads_the_size_or_values_of_a_batch(loss, eager):
    plain = fit_loss(tf.distribute.get_strategy(), loss, run_eagerly=eager)
    divided = fit_loss(kdist.MirroredStrategy(replicas=2), loss, run_eagerly=eager)
    np.testing.assert_allclose(divided, plain, rtol=1e-6)


def test_an_optimizer_is_built_outside_of_the_scope():
    """As Keras recommends before a `tf.function`."""
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        model = make_model("built")
        optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    assert len(optimizer.variables) == 6
    for variable in optimizer.variables:
        assert len(strategy.experimental_local_results(variable.value)) == 2
    model.compile(optimizer, "mse")
    model.fit(X, Y, verbose=0)
    assert int(optimizer.iterations) == 1


class BagOfWords(keras.layers.Layer):
    """Takes sparse rows, which Keras cannot stand in for as it builds a model."""

    def build(self, shape):
        self.table = self.add_weight(shape=(shape[-1], 3), initializer="ones")

    def call(self, rows):
        return tf.sparse.sparse_dense_matmul(rows, self.table)

    def compute_output_spec(self, rows):
        return keras.KerasTensor((rows.shape[0], 3))


def test_a_layer_of_sparse_rows():
    rows = np.random.default_rng(0).integers(0, 2, (20, 30)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(rows), np.ones((20, 3))))

    def losses(strategy):
        with strategy.scope():
            inputs = keras.Input((30,), sparse=True)
            model = keras.Model(inputs, BagOfWords()(inputs))
        model.compile(keras.optimizers.SGD(0.001), "mse", metrics=["mae"])
        return model.fit(data.batch(6), shuffle=False, verbose=0).history

    plain = losses(tf.distribute.get_strategy())
    divided = losses(kdist.MirroredStrategy(replicas=2))
    assert divided.keys() == plain.keys()
    for name, values in plain.items():
        np.testing.assert_allclose(divided[name], values, rtol=1e-5)
