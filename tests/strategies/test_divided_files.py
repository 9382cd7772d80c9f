"""Files of models with divided state or weights hold whole values, both ways."""

import contextlib

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import Checkpoint
from kdist.spmd.divided_variables import DividedVariable
from replicas import assert_close

pytestmark = pytest.mark.usefixtures("without_graph_optimizer", "small", "float64")

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(22, 6)), RNG.normal(size=(22, 5))
PLACES = ("plain", "2 whole", "2 divided", "3 weights")


def scope(place):
    if place == "plain":
        return contextlib.nullcontext()
    count, kind = place.split()
    devices = [f"/cpu:{i}" for i in range(int(count))]
    return kdist.MirroredStrategy(
        devices, shard_optimizer=kind == "divided", shard_weights=kind == "weights"
    ).scope()


def new(place):
    with scope(place):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(5)]
        model = keras.Sequential([keras.Input((6,)), *layers])
        optimizer = keras.optimizers.Adam(0.1, use_ema=True, gradient_accumulation_steps=2)
        model.compile(optimizer, "mse")
        optimizer.build(model.trainable_variables)
    check_division(model, place)
    return model


def check_division(model, place):
    """Assert that state and weights are divided where they should be, and nowhere else."""
    for variables, kinds in (
        (model.optimizer.variables, ("divided", "weights")),
        (model.variables, ("weights",)),
    ):
        is_divided = any(isinstance(each.value, DividedVariable) for each in variables)
        assert is_divided == (place.partition(" ")[2] in kinds)


def fit(model, **options):
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0, **options)
    return model


def through_file(model, place, path):
    model.save(path / "model.keras")
    with scope(place):
        return keras.models.load_model(path / "model.keras")


def through_checkpoint(model, place, path):
    prefix = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(path / "state"))
    other = new(place)
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).read(
        prefix
    ).assert_existing_objects_matched()
    return other


def through_arrays(model, place, path):
    other = new(place)
    for one, copy in zip(model.optimizer.variables, other.optimizer.variables, strict=True):
        copy.assign(one.numpy())
    other.set_weights(model.get_weights())
    return other


def assert_equal(one, other, tolerance=1e-12):
    both = [
        [*model.get_weights(), *(variable.numpy() for variable in model.optimizer.variables)]
        for model in (one, other)
    ]
    assert_close(*both, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("way", "source", "target"),
    [
        pytest.param(way, PLACES[i], PLACES[i - 1], marks=[pytest.mark.slow] * (i != number))
        for number, way in enumerate((through_file, through_checkpoint, through_arrays))
        for i in range(4)
    ],
)
def test_state_goes_on_elsewhere(way, source, target, tmp_path):
    model = fit(new(source))
    other = way(model, target, tmp_path)
    assert_equal(other, model)
    check_division(other, target)
    assert_equal(fit(other), fit(model), 1e-9)


@pytest.mark.parametrize("place", ["2 divided", "3 weights"])
def test_saved_models_are_exported(place, tmp_path):
    model = fit(new(place))
    tf.saved_model.save(model, str(tmp_path / "all"))
    values = str(tmp_path / "all" / "variables" / "variables")
    names = [name for name, _ in tf.train.list_variables(values)]
    momentum = next(name for name in names if name.startswith("optimizer/_variables/2/"))
    value = tf.train.load_variable(values, momentum)
    np.testing.assert_array_equal(value, model.optimizer.variables[2])
    model.export(tmp_path / "served", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(loaded.serve(X), model(X))


class StopError(Exception):
    """Ends a fit as a kill does."""


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if (self.params["epochs"], batch) == (3, 1) and self.model.optimizer.iterations > 2:
            raise StopError


def test_a_fit_resumes_with_the_state_divided_otherwise(tmp_path):
    saving = {"epochs": 3, "callbacks": [Checkpoint(tmp_path, every_steps=1, verbose=0), Stop()]}
    with pytest.raises(StopError):
        fit(new("2 divided"), **saving)
    saving["callbacks"] = [Checkpoint(tmp_path, every_steps=1, verbose=0)]
    assert_equal(fit(new("3 divided"), **saving), fit(new("plain"), epochs=3), 1e-9)


def test_an_optimizer_from_elsewhere_is_divided():
    plain = fit(new("plain"))
    with scope("2 divided"):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(7, activation="tanh"), keras.layers.Dense(5)]
        model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(keras.optimizers.Adam(0.1, use_ema=True, gradient_accumulation_steps=2), "mse")
    assert_equal(fit(model), plain, 1e-9)
    assert any(isinstance(v.value, DividedVariable) for v in model.optimizer.variables)


class Beside(keras.optimizers.Optimizer):
    """Has state that is made beside other state."""

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.first = [self.add_variable_from_reference(v, "first") for v in variables]
        self.second = [self.add_variable_from_reference(v, "second") for v in self.first]

    def update_step(self, gradient, variable, learning_rate):
        at = self._get_variable_index(variable)
        self.assign(self.first[at], 0.5 * self.first[at] + gradient)
        self.assign_add(self.second[at], self.first[at])
        self.assign_sub(variable, learning_rate * self.second[at])


def embedding():
    layers = [keras.layers.Embedding(9, 6), keras.layers.Flatten(), keras.layers.Dense(5)]
    return keras.Sequential([keras.Input((6,), dtype="int32"), *layers])


def dense():
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(5)])


@pytest.mark.parametrize(
    ("make", "optimizer", "options"),
    [
        (dense, lambda: Beside(0.1), {}),
        (embedding, lambda: keras.optimizers.Adagrad(0.1), {}),
        (embedding, lambda: keras.optimizers.Adagrad(0.1), {"run_eagerly": True}),
    ],
)
def test_states_of_custom_and_sparse_optimizers_are_divided(make, optimizer, options):
    x = X if make is dense else np.arange(22 * 6).reshape(22, 6) % 9
    results = []
    for place in ("plain", "2 divided"):
        with scope(place):
            keras.utils.set_random_seed(1)
            model = make()
            model.compile(optimizer(), "mse", **options)
        model.fit(x, Y, batch_size=8, shuffle=False, verbose=0)
        results.append(model)
    assert_equal(*results)
    assert any(isinstance(v.value, DividedVariable) for v in results[1].optimizer.variables)


@pytest.mark.parametrize("in_scope", [True, False])
def test_an_optimizer_is_built_by_a_step_of_ones_own(in_scope):
    """Guides of TensorFlow call the step in the scope of the strategy."""
    results = []
    for place in ("plain", "2 divided"):
        with scope(place):
            strategy = tf.distribute.get_strategy() if place != "plain" else None
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5)])
            optimizer = keras.optimizers.Adam(0.1, clipnorm=0.5)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)  # noqa: B023
            variables = model.trainable_variables  # noqa: B023
            optimizer.apply(tape.gradient(loss, variables), variables)  # noqa: B023

        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
        if strategy is None:
            own = tf.function(step, autograph=False)
        else:
            data = strategy.experimental_distribute_dataset(data)
            own = tf.function(lambda *b: strategy.run(step, args=b), autograph=False)  # noqa: B023
        with strategy.scope() if strategy and in_scope else contextlib.nullcontext():
            for batch in data:
                own(*batch)
        results.append([*model.get_weights(), *(v.numpy() for v in optimizer.variables)])
    assert_close(*results, rtol=0, atol=1e-12)
