"""A saved model is trained on in a strategy's scope as if unbroken."""

import warnings

import kdist
import keras
import numpy as np
import pytest
from kdist.errors import UserError
from replicas import assert_close, assert_equal

random = np.random.default_rng(0)
X = random.normal(size=(30, 4))
Y = (X @ random.normal(size=(4, 1)) > 0).astype("float64")
BATCH = 7


pytestmark = pytest.mark.usefixtures("float64_in_module", "without_graph_optimizer_in_module")


@pytest.fixture(scope="module")
def strategies():
    return {replicas: kdist.MirroredStrategy(replicas=replicas) for replicas in (1, 2, 3)}


class Scale(keras.layers.Layer):
    """A layer that nobody has registered."""

    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs):
        return self.factor * inputs

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def make(optimizer=None):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inputs = keras.Input((4,))
    first = layers.Dense(6, activation="relu", kernel_regularizer="l2")(inputs)
    both = layers.Concatenate()([layers.BatchNormalization()(first), Scale(0.5)(inputs)])
    outputs = layers.Dense(1, activation="sigmoid")(both)
    model = keras.Model(inputs, outputs)
    optimizer = optimizer or keras.optimizers.Adam(0.05, clipnorm=1.0, amsgrad=True)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    return model


def fit(model, epochs=2):
    model.fit(X, Y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    return model


def values(model):
    return [
        keras.ops.convert_to_numpy(one) for one in (*model.variables, *model.optimizer.variables)
    ]


def assert_same(model, expected):
    assert_close(values(model), values(expected), rtol=0, atol=1e-11)


OPTIMIZERS = {
    "adam": lambda: None,
    "schedule, averages and accumulation": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.CosineDecay(0.1, 30),
        momentum=0.9,
        use_ema=True,
        ema_momentum=0.5,
        gradient_accumulation_steps=2,
    ),
}


@pytest.fixture(scope="module", params=OPTIMIZERS)
def trained(request, tmp_path_factory):
    """The file of a model that stock Keras has trained, and the model that is trained on."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model = fit(make(OPTIMIZERS[request.param]()))
    model.save(path)
    return path, fit(model)


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_saved_model_is_trained_on_as_if_unbroken(strategies, trained, replicas):
    path, expected = trained
    objects = {"Scale": Scale}
    made = kdist.load_model(path, strategy=strategies[replicas], custom_objects=objects)
    assert_same(fit(made), expected)


def test_a_model_of_other_replicas_is_saved_and_trained_on(strategies, tmp_path):
    """On 2 and 3 replicas, an epoch each, the batch norms synchronized in the file."""
    path = tmp_path / "model.keras"
    fit(strategies[2].build(make), epochs=1).save(path)
    with strategies[3].scope():
        model = kdist.load_model(path, custom_objects={"Scale": Scale})
    assert_same(fit(model, epochs=1), fit(make()))


def test_a_file_needs_a_strategy_and_has_to_be_one(strategies, tmp_path):
    path = tmp_path / "model.keras"
    with pytest.raises(UserError, match="without a strategy of kdist: pass strategy="):
        kdist.load_model(path)
    with pytest.raises(UserError, match="Keras cannot open .*model.keras"):
        kdist.load_model(path, strategy=strategies[2])
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="Keras cannot open .*model.keras"):
        kdist.load_model(path, strategy=strategies[2])
    make().save(path)
    words = r'contains Scale, which Keras does not know; pass custom_objects={"Scale": Scale}$'
    with pytest.raises(UserError, match=words):
        kdist.load_model(path, strategy=strategies[2])
    assert not kdist.load_model(
        path, strategy=strategies[2], custom_objects={"Scale": Scale}, compile=False
    ).compiled


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_file_that_was_never_trained_is_opened(strategies, tmp_path, name):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.MeanSquaredError())
    model.save(tmp_path / name)
    with warnings.catch_warnings(record=True) as caught:  # Keras's own, of a missing state
        warnings.simplefilter("always")
        keras.models.load_model(tmp_path / name)
    expected = [warning.category for warning in caught]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = kdist.load_model(tmp_path / name, strategy=strategies[2])
    assert [warning.category for warning in caught] == expected
    assert made.compiled
    assert_equal(made.get_weights(), model.get_weights())


@pytest.fixture
def half():
    """A model that is trained with scaled losses, where the policy is another now."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse")
    keras.config.set_dtype_policy(before)
    fit(model, epochs=1)
    yield model
    keras.config.set_dtype_policy(before)


def test_no_state_of_an_optimizer_is_lost_silently(strategies, half, tmp_path):
    path = tmp_path / "half.keras"
    half.save(path)
    with pytest.raises(UserError, match="optimizer's state in .* does not match .*dtype_policy"):
        kdist.load_model(path, strategy=strategies[2])
    keras.config.set_dtype_policy("mixed_float16")
    made = kdist.load_model(path, strategy=strategies[2])
    assert_equal(values(made), values(half))
