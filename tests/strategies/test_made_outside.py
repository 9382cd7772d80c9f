"""Models made outside a strategy's scope, or saved, are trained on in it as if unbroken."""

import warnings

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.layers import SyncBatchNormalization
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


def weighted(y_true, y_pred):
    """A loss that nobody has registered."""
    return keras.losses.binary_crossentropy(y_true, y_pred) * 0.5


def make(optimizer=None, loss="binary_crossentropy", dropout=0.0):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    inputs = keras.Input((4,))
    first = layers.Dense(6, activation="relu", kernel_regularizer="l2")(inputs)
    both = layers.Concatenate()([layers.BatchNormalization()(first), Scale(0.5)(inputs)])
    outputs = layers.Dense(1, activation="sigmoid")(layers.Dropout(dropout, seed=3)(both))
    model = keras.Model(inputs, outputs)
    optimizer = optimizer or keras.optimizers.Adam(0.05, clipnorm=1.0, amsgrad=True)
    model.compile(optimizer, loss, metrics=["accuracy", keras.metrics.AUC(num_thresholds=5)])
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
    """A model that stock Keras has trained, its file, and the one that is trained on unbroken."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model = fit(make(OPTIMIZERS[request.param]()))
    model.save(path)
    same = fit(fit(make(OPTIMIZERS[request.param]())))
    return model, path, same


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_model_is_made_anew_and_trained_on_as_if_unbroken(strategies, trained, replicas):
    model, _, expected = trained
    before = values(model)
    strategy = strategies[replicas]
    made = strategy.build(model)
    assert made is not model
    assert_same(made, model)
    assert any(isinstance(layer, SyncBatchNormalization) for layer in made.layers)
    assert_same(fit(made), expected)
    assert_equal(values(model), before)  # it stays as it was
    assert strategy.build(made) is made


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_saved_model_is_trained_on_as_if_unbroken(strategies, trained, replicas):
    _, path, expected = trained
    objects = {"Scale": Scale}
    made = kdist.load_model(path, strategy=strategies[replicas], custom_objects=objects)
    assert_same(fit(made), expected)


def test_a_model_of_other_replicas_is_saved_and_trained_on(strategies, tmp_path):
    """On 1, 2 and 3 replicas, an epoch each, the batch norms synchronized in the files."""
    model = strategies[1].build(make)
    fit(model, epochs=1)
    for replicas in (2, 3):
        path = tmp_path / f"{replicas}.keras"
        model.save(path)
        with strategies[replicas].scope():
            model = kdist.load_model(path, custom_objects={"Scale": Scale})
        fit(model, epochs=1)
    assert_same(model, fit(make(), epochs=3))


def test_a_model_of_one_strategy_is_made_anew_in_another(strategies):
    """With its dropout, whose draws continue; a file does not have their state."""
    model = fit(strategies[2].build(lambda: make(dropout=0.2)))
    made = strategies[3].build(model)
    assert_same(fit(made), fit(make(dropout=0.2), epochs=4))


class Nested(keras.Model):
    """A subclass with a configuration, and a model in it."""

    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(1)])

    def call(self, inputs):
        return self.inner(inputs)

    def get_config(self):
        return {"units": self.units}


@pytest.mark.parametrize("kind", ["subclass", "own loss", "not compiled", "not trained"])
def test_models_of_all_kinds_are_made_anew(strategies, kind):
    if kind == "subclass":
        model = Nested()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        fit(model)
    else:
        model = make(loss=weighted if kind == "own loss" else "mse")
        if kind == "own loss":
            fit(model)
        elif kind == "not compiled":
            model = keras.Model(model.input, model.output)
    made = strategies[2].build(model)
    assert_equal(made.get_weights(), model.get_weights())
    assert made.compiled == model.compiled
    if made.compiled:
        assert_same(fit(made), fit(model))
    else:
        np.testing.assert_allclose(made.predict(X, verbose=0), model.predict(X, verbose=0))


def bent(x):
    """An activation that nobody has registered."""
    return keras.ops.tanh(x) + 0.1 * x


def error(y_true, y_pred):
    """A metric that nobody has registered."""
    return keras.ops.abs(y_true - y_pred)


class Half(keras.regularizers.Regularizer):
    def __call__(self, weights):
        return 0.05 * keras.ops.sum(weights**2)

    def get_config(self):
        return {}


class Falling(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, first):
        self.first = first

    def __call__(self, step):
        return self.first / (1 + keras.ops.cast(step, "float64"))

    def get_config(self):
        return {"first": self.first}


@pytest.mark.parametrize("epochs", [0, 1])
def test_functions_and_objects_of_parts_need_not_be_registered(strategies, epochs):
    def make_one():
        keras.utils.set_random_seed(1)
        hidden = keras.layers.Dense(3, activation=bent, kernel_regularizer=Half())
        outputs = keras.layers.Dense(1, activation="sigmoid")
        model = keras.Sequential([keras.Input((4,)), hidden, outputs])
        optimizer = keras.optimizers.SGD(Falling(0.1), momentum=0.9)
        model.compile(optimizer, weighted, metrics=[error])
        return model

    model = make_one()
    if epochs:
        fit(model, epochs=epochs)
    made = strategies[2].build(model)
    history, expected = (
        one.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0).history for one in (made, model)
    )
    assert history["error"] == pytest.approx(expected["error"], abs=1e-6)
    assert_same(made, model)


class Undescribed(keras.Model):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs):
        return self.layer(inputs)

    def get_config(self):
        raise NotImplementedError("no configuration")


class Forgetful(Nested):
    def get_config(self):
        return {}


class OwnCompile(Nested):
    def compile(self, optimizer, extra):
        super().compile(optimizer, "mse")
        self.extra = extra


def forgetful():
    return Forgetful(units=5)


def own_compile():
    model = OwnCompile()
    model.compile("sgd", extra=lambda: 1)
    return model


def with_lambdas():
    """Return a model with a lambda that needs nothing, and a loss that needs this module."""
    double = keras.layers.Lambda(lambda x: 2 * x)
    model = keras.Sequential([keras.Input((4,)), double, keras.layers.Dense(1)])
    model.compile("sgd", lambda y_true, y_pred: weighted(y_true, y_pred))
    return model


@pytest.mark.parametrize(
    ("make_one", "why"),
    [
        (with_lambdas, "a lambda in it uses weighted, as only"),
        (lambda: Undescribed(keras.layers.Dense(1)), "no configuration"),
        (forgetful, "variables"),
        (own_compile, r"it has a compile\(\) of its own"),
    ],
)
def test_why_a_model_cannot_be_made_anew_is_said(strategies, make_one, why):
    model = make_one()
    model(X[:2])
    with pytest.raises(UserError, match=rf"cannot be made anew .*{why}.*lambda: make_model"):
        strategies[2].build(model)


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
    words = r'it does not know Scale, of which .*: pass custom_objects={"Scale": Scale}$'
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


def adapted(kind):
    """A model with a layer that has learned from data, and inputs."""
    layers = keras.layers
    words = np.array([["a c"], ["d"], ["x"]])
    make_layer, examples, inputs = {
        "normalization": (layers.Normalization, X, X),
        "discretization": (lambda: layers.Discretization(num_bins=4), X, X),
        "numbers": (layers.IntegerLookup, np.arange(5, 9), np.array([[6], [8], [9]])),
        "text": (lambda: layers.TextVectorization(output_mode="tf_idf"), ["a b", "c d a"], words),
        "given": (lambda: layers.StringLookup(vocabulary=["d"]), None, words),
    }[kind]
    layer = make_layer()
    if examples is not None:
        layer.adapt(examples)
    kinds = {"f": "float64", "i": "int64", "U": "string"}
    entry = keras.Input(inputs.shape[1:], dtype=kinds[inputs.dtype.kind])
    return keras.Sequential([entry, layer]), tf.constant(inputs)


@pytest.mark.parametrize("kind", ["normalization", "discretization", "numbers", "text", "given"])
def test_adapted_layers_keep_their_state(strategies, kind):
    model, inputs = adapted(kind)
    made = strategies[2].build(model)
    np.testing.assert_allclose(made(inputs), model(inputs), rtol=1e-6)
    assert np.ptp(model(inputs)) > 0


def test_a_layer_that_is_not_adapted_yet_stays_so(strategies):
    model = keras.Sequential([keras.Input((1,), dtype="int64"), keras.layers.IntegerLookup()])
    made = strategies[2].build(model)
    made.layers[0].adapt(np.arange(5, 9))
    np.testing.assert_array_equal(made(np.array([[5], [7], [9]]))[-1], [0])


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


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_scaled_losses_are_kept_whatever_the_policy_is_now(strategies, half, policy):
    keras.config.set_dtype_policy(policy)
    made = strategies[2].build(half)
    assert keras.config.dtype_policy().name == policy
    assert type(made.optimizer) is type(half.optimizer) is keras.optimizers.LossScaleOptimizer
    assert_equal(values(made), values(half))


def test_no_state_of_an_optimizer_is_lost_silently(strategies, half, tmp_path):
    path = tmp_path / "half.keras"
    half.save(path)
    with pytest.raises(UserError, match="optimizer's state in .* does not fit .*dtype_policy"):
        kdist.load_model(path, strategy=strategies[2])
    keras.config.set_dtype_policy("mixed_float16")
    made = kdist.load_model(path, strategy=strategies[2])
    assert_equal(values(made), values(half))
