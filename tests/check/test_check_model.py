"""`kdist.check_model`: what is equal, where it differs first, and samples as `fit` has them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist import check_model
from kdist._upstream.seeds import keep_seeds
from kdist.errors import UserError
from kdist.spmd.collectives import Collectives
from kdist.spmd.fixed_order import FixedOrder
from kdist.spmd.operation import LOCAL, RULES, Decision
from kdist.spmd.placements import REPLICATE
from kdist.strategies.exact_strategy import ExactStrategy
from kdist.tools.check.check_batches import read_batches
from kdist.training.user_model.user_data import check_data_result
from keras import layers, ops

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

X = np.random.default_rng(0).normal(size=(40, 6))
Y = X.sum(axis=1)


def check(build, data=(X, Y), **options):
    return check_model(build, data, **{"replicas": (2,), "steps": 2, **options})


def sequential(*hidden, optimizer="sgd", **options):
    model = keras.Sequential([keras.Input((6,)), *hidden, layers.Dense(1, name="last")])
    model.compile(optimizer, "mse", **options)
    return model


class Gan(keras.Model):
    """Has neither a `call` nor a `test_step`, and its weights are made by its first step."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([layers.Dense(6)])

    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self.generator(x) - x[::-1]))
        weights = self.generator.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def gan():
    model = Gan()
    model.compile(keras.optimizers.SGD(0.1))
    return model


def mixed():
    with_policy = layers.Dense(4, dtype="mixed_bfloat16")
    return sequential(with_policy, optimizer=keras.optimizers.SGD(0.01))


class Float32(layers.Layer):
    """Rounds to float32 whatever Keras is set to."""

    def call(self, x):
        return ops.cast(ops.cast(x, "float32"), x.dtype)


GOOD = {
    "normalized": (
        lambda: sequential(layers.BatchNormalization(), layers.Dropout(0.5), optimizer="adam"),
        "float64",
    ),
    "gan": (gan, "float64"),
    "float32": (lambda: sequential(layers.Dense(4, dtype="float32")), "float32 (a layer computes"),
    "casts": (lambda: sequential(layers.Dense(4), Float32()), "float64"),
    "mixed": (mixed, "float16"),
}


SLOW = ("float32", "casts", "mixed")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in GOOD]
)
def test_a_good_model_is_equal(name):
    build, precision = GOOD[name]
    with keep_seeds():
        drawn = np.random.random(), float(tf.random.uniform(()))
    before = keras.config.floatx(), keras.config.dtype_policy()
    result = check(build, replicas=(2, 3), steps=4)
    result.assert_equal()
    assert result.precision.startswith(precision)
    assert result.steps == "2 epochs of batches of 12, 7 samples"
    assert len(result.notes) == (name == "gan")
    assert (keras.config.floatx(), keras.config.dtype_policy()) == before
    with keep_seeds():
        assert (np.random.random(), float(tf.random.uniform(()))) == drawn


def test_the_first_difference_is_named():
    class Shrinks(keras.optimizers.SGD):
        def apply(self, gradients, variables=None):
            factor = 0.5 if self.is_many else 1.0
            return super().apply([factor * one for one in gradients], variables)

    def build():
        optimizer = Shrinks(0.1)
        optimizer.is_many = isinstance(tf.distribute.get_strategy(), ExactStrategy)
        return sequential(layers.Dense(4), optimizer=optimizer)

    result = check(build)
    first = result.differences["2 replicas"][0]
    assert (first.step, first.kind) == (1, "weights")
    assert first.gap > 1e-3
    assert not result.unrepeatable
    assert "2 replicas: differs from step 1 on\n    weights sequential" in str(result)
    assert (
        "kdist divides every operation correctly, so the model's code or its inputs differ"
        in str(result)
    )


def sums_off_by(monkeypatch, factor):
    right = Collectives.sum_all

    def wrong(self, values):
        return [
            [
                one * tf.cast(1 + factor, one.dtype) if one.dtype.is_floating else one
                for one in summed
            ]
            for summed in right(self, values)
        ]

    monkeypatch.setattr(Collectives, "sum_all", wrong)


def test_a_sum_that_is_slightly_wrong_is_found(monkeypatch):
    sums_off_by(monkeypatch, 1e-6)
    result = check(lambda: sequential(layers.Dense(4)))
    assert not result.equal
    (note,) = result.notes
    assert note.startswith("2 replicas: kdist has divided ")


def test_the_operation_that_is_divided_wrong_is_named(monkeypatch):
    def wrong(op):
        return Decision([LOCAL, REPLICATE], [op.placements[0].as_plain()])

    monkeypatch.setitem(RULES, "Cumsum", wrong)
    result = check(lambda: sequential(layers.Lambda(lambda x: tf.cumsum(x, 0))))
    (note,) = result.notes
    assert "kdist has divided Cumsum of tests/check/test_check_model.py" in note


@pytest.mark.slow
def test_bits_are_those_of_one_replica_and_another_order_of_a_sum_is_found(monkeypatch):
    def build():
        return sequential(layers.Dense(64, activation="tanh"), layers.Dropout(0.3, seed=1))

    found = check(build, replicas=(2, 4), bits=True)
    assert found.equal
    assert str(found).startswith("equal to one replica of 4 shards\n")
    made = FixedOrder._sum_parts

    def otherwise(self, parts):
        return made(self, parts if len({*self.devices}) == 1 else [parts[i] for i in (0, 2, 1, 3)])

    monkeypatch.setattr(FixedOrder, "_sum_parts", otherwise)
    found = check(build, replicas=(2, 4), bits=True)
    assert not found.equal
    first = found.differences["2 replicas"][0]
    assert first.step == 1
    assert 0 < first.gap < 1e-5


def test_what_a_line_computes_in_float32_is_compared_in_float32(monkeypatch):
    sums_off_by(monkeypatch, 2e-5)
    result = check(lambda: sequential(layers.Dense(4), Float32()))
    assert result.equal
    assert 'ops.cast(x, "float32")' in result.precision


def test_what_no_seed_repeats_is_told_apart():
    def build():
        model = sequential(layers.Dense(4))
        model.layers[0].kernel.assign(np.random.default_rng().normal(size=(6, 4)))
        return model

    result = check(build)
    assert not result.equal
    assert result.unrepeatable[0].kind == "initial weights"
    assert "two runs on one replica" in str(result)


def test_an_error_on_several_replicas_names_the_line():
    class Picky(layers.Layer):
        def call(self, x):
            if isinstance(self.strategy, ExactStrategy):
                raise TypeError("no, not there")
            return x

    def build():
        picky = Picky()
        picky.strategy = tf.distribute.get_strategy()
        return sequential(layers.Dense(4), picky)

    error = check(build).errors["2 replicas"]
    assert error.startswith("tests/check/test_check_model.py:")
    assert "no, not there" in error


@pytest.mark.parametrize(
    ("build", "data", "options", "message"),
    [
        (lambda: sequential(layers.Reshape((5,))), (X, Y), {}, "does not train on one replica"),
        (lambda: 3, (X, Y), {}, "build returned int, expected a compiled"),
        (sequential(), (X, Y), {}, r"pass build, not build\(\)"),
        (sequential, (X[:1], Y[:1]), {}, "fewer than 2 samples"),
        (sequential, tf.data.Dataset.from_tensor_slices((X, Y)), {}, "single samples"),
        (
            sequential,
            tf.data.Dataset.from_tensors((X, Y)),
            {"batch_size": 8},
            "returns batches, not arrays: leave out",
        ),
    ],
)
def test_bad_input(build, data, options, message):
    with pytest.raises(UserError, match=message):
        check(build, data, **options)


class Steps(keras.Model):
    """Keeps what its steps get."""

    def train_step(self, data):
        self.seen = keras.tree.map_structure(lambda leaf: leaf.dtype.name, data)
        return {"loss": tf.zeros(())}


class Images(keras.utils.PyDataset):
    """Batches without targets."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return X[8 * index : 8 * index + 8]


def passed(*data, **options):
    """What a step gets of a fit."""
    model = Steps()
    model.compile(run_eagerly=True)
    named = dict(zip(("x", "y", "sample_weight"), data, strict=False))
    model.fit(**named, epochs=1, shuffle=False, verbose=0, **options)
    return model.seen


DATA = {
    "arrays": (X, Y),
    "weights": (X, Y, np.ones(40)),
    "several inputs": ([X, X], Y),
    "by name": ({"a": X, "b": X}, {"c": Y}),
    "images alone": (X,),
    "images by name": ({"a": X},),
    "PyDataset": Images(),
    "tf.data": tf.data.Dataset.from_tensor_slices((X,)).batch(8),
}


@pytest.mark.parametrize("name", DATA)
def test_samples_as_fit_passes_them(name):
    data = DATA[name]
    batches = read_batches(check_data_result(data), 2, 8)
    assert batches.sizes == [8, 5]
    fit = passed(*data, batch_size=8) if isinstance(data, tuple) else passed(data)
    assert passed(batches.to_dataset()) == fit


def test_batches_of_a_fixed_size_stay_whole():
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True)
    batches = read_batches(check_data_result(data), 2, 8)
    assert batches.sizes == [8, 8]
    assert batches.to_dataset().element_spec[0].shape == (8, 6)


TEXTS = ["a", "b c", "dé", "a"] * 10


@pytest.mark.parametrize("texts", [np.array(TEXTS, object), np.array(TEXTS), tf.constant(TEXTS)])
def test_texts(texts):
    batches = read_batches(check_data_result((texts, Y)), 2, 8)
    (found, _), *_ = batches.to_dataset()
    assert [text.decode() for text in found.numpy()] == TEXTS[:8]


def test_ragged_batches_stay_ragged():
    rows = tf.ragged.constant([[1.5], [2.0, 3.0], [], [4.0]] * 5, dtype="float32")
    data = tf.data.Dataset.from_tensor_slices((rows, Y[:20])).batch(8)
    batches = read_batches(check_data_result(data), 2, 8).to_float64()
    (first, _), (last, _) = batches.to_dataset()
    assert (first.dtype, first.to_list()) == (tf.float64, rows[:8].to_list())
    assert last.to_list() == rows[8:13].to_list()
