"""Files of models go from plain Keras to a strategy and back, in every format of Keras."""

import contextlib
import warnings

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from replicas import assert_equal

ROWS = 5


@keras.saving.register_keras_serializable("test_files_both_ways")
class Subclassed(keras.Model):
    """A model whose layers are attributes, as Keras puts those of lists into no checkpoint."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.norm = layers.Dense(4), layers.BatchNormalization()
        self.head = layers.Dense(1)

    def call(self, inputs, training=False):
        return self.head(self.norm(self.dense(inputs), training=training))


def with_lora():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(1)])
    model.layers[0].enable_lora(2)
    return model


def normalized():
    layer = layers.Normalization()
    layer.adapt(np.arange(20.0).reshape(5, 4))
    return keras.Sequential([keras.Input((4,)), layer, layers.Dense(1)])


def tokens(*made):
    return keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(9, 4), *made])


def images(*made):
    return keras.Sequential([keras.Input((6, 6, 3)), *made, layers.Flatten(), layers.Dense(1)])


MODELS = {
    "dense": lambda: keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)]),
    "batch norm": lambda: images(layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU()),
    "embedding": lambda: tokens(layers.Flatten(), layers.Dense(1)),
    "lstm": lambda: tokens(layers.Bidirectional(layers.LSTM(3)), layers.Dropout(0.1)),
    "lora": with_lora,
    "subclassed": lambda: Subclassed(),
    "normalized": normalized,
}


def data(name):
    rng = np.random.default_rng(0)
    if name in ("embedding", "lstm"):
        x = rng.integers(0, 9, (ROWS, 6))
    elif name == "batch norm":
        x = rng.normal(size=(ROWS, 6, 6, 3))
    else:
        x = rng.normal(size=(ROWS, 4))
    return x, np.zeros((ROWS, 6 if name == "lstm" else 1))


def new(name, state):
    """A model of its own initial weights: not compiled, compiled or trained."""
    model = MODELS[name]()
    x, y = data(name)
    if not model.built:
        model(x)
    if state != "not compiled":
        model.compile(keras.optimizers.Adam(0.1), "mse")
    if state == "trained":
        model.fit(x, y, batch_size=2, verbose=0)
    return model


def through_file(saved, loaded, path):
    saved.save(path / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras's own, of an untrained optimizer
        return keras.models.load_model(path / "model.keras")


def through_weights(saved, loaded, path):
    saved.save_weights(path / "model.weights.h5")
    loaded.load_weights(path / "model.weights.h5")
    return loaded


def through_checkpoint(saved, loaded, path):
    prefix = tf.train.Checkpoint(model=saved).write(str(path / "checkpoint"))
    tf.train.Checkpoint(model=loaded).read(
        prefix
    ).expect_partial().assert_existing_objects_matched()
    return loaded


WAYS = {"file": through_file, "weights": through_weights, "checkpoint": through_checkpoint}


@pytest.fixture(scope="module")
def strategy():
    return kdist.MirroredStrategy(replicas=2)


STATES = [
    pytest.param(
        name, "trained", marks=[pytest.mark.slow] if name in ("batch norm", "lstm") else []
    )
    for name in MODELS
] + [("dense", "not compiled"), ("dense", "compiled")]


@pytest.mark.parametrize(("name", "state"), STATES)
def test_files_go_both_ways(strategy, tmp_path, name, state):
    """Predictions, weights and an optimizer's state are those that were saved."""
    x, _ = data(name)
    made, plain = strategy.build(lambda: new(name, state)), new(name, state)
    before = [(model.predict(x, verbose=0), model.get_weights()) for model in (made, plain)]
    for way, through in WAYS.items():
        for saved, loaded, (expected, weights) in zip(
            (made, plain), (plain, made), before, strict=True
        ):
            saved.set_weights(weights)
            loaded.set_weights([weight + 1 for weight in loaded.get_weights()])
            with strategy.scope() if loaded is made else contextlib.nullcontext():
                found = through(saved, loaded, tmp_path)
            predicted = found.predict(x, verbose=0)
            np.testing.assert_allclose(predicted, expected, rtol=1e-5, atol=1e-6, err_msg=way)
            if name == "lora" and way != "checkpoint":
                continue  # Keras adds the two matrices to the kernel
            assert_equal(found.get_weights(), weights, way)
            if way == "file" and state == "trained":
                assert_equal(found.optimizer.variables, saved.optimizer.variables, way)


@pytest.mark.parametrize("name", ["batch norm", "embedding"])
def test_an_exported_model_is_plain(strategy, tmp_path, name):
    made = strategy.build(lambda: new(name, "trained"))
    x = data(name)[0].astype("int32" if name == "embedding" else "float32")
    made.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(
        served.serve(x).numpy(), made.predict(x, verbose=0), rtol=1e-5, atol=1e-6
    )
