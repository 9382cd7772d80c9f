"""Batch norms are found, converted and frozen, and models are computed as before."""

import kdist
import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.layers import SyncBatchNormalization
from kdist.layers.convert_batch_norm import (
    convert_batch_norm,
    unsynchronized_batch_norms,
)
from keras import layers

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

STOCK = keras.layers.BatchNormalization
KINDS = {
    "synchronized": True,
    "stock": False,
}


def functional():
    inputs = keras.Input((6,))
    x = keras.layers.Dense(16, name="first")(inputs)
    x = STOCK(name="norm", momentum=0.5)(x)
    return keras.Model(inputs, keras.layers.Dense(2, name="last")(x), name="functional")


def sequential():
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(16), STOCK(name="norm"), keras.layers.Dense(2)]
    )


def nested():
    inputs = keras.Input((6,))
    inner = keras.Sequential([keras.Input((6,)), functional(), STOCK(name="inner_norm")])
    x = keras.layers.Dense(6)(STOCK(name="norm")(inputs))
    return keras.Model(inputs, inner(x))


def shared():
    """Return a model with a batch norm at two places."""
    inputs = keras.Input((6,))
    norm = STOCK(name="norm")
    x = keras.layers.Dense(6)(norm(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(norm(x)))


class Block(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.pair = (keras.layers.Dense(8), STOCK(name="block_norm"))

    def build(self, input_shape):
        self.pair[0].build(input_shape)
        self.pair[1].build((None, 8))

    def call(self, x, training=None):
        return self.pair[1](self.pair[0](x), training=training)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.norm = STOCK(name="norm")
        self.blocks = [Block(), STOCK(name="listed_norm")]
        self.named = {"inner": functional(), "again": self.norm}
        self.dense = keras.layers.Dense(6)

    def call(self, x, training=None):
        x = self.norm(x, training=training)
        for block in self.blocks:
            x = block(x, training=training)
        x = self.named["again"](self.dense(x), training=training)
        return self.named["inner"](x, training=training)


def subclassed():
    model = Subclassed()
    model(np.zeros((1, 6), "float32"))
    return model


def with_block():
    """A layer with a batch norm of its own in a Functional model."""
    inputs = keras.Input((6,))
    return keras.Model(inputs, keras.layers.Dense(2)(Block()(inputs)))


MODELS = [functional, sequential, nested, shared, subclassed, with_block]


def data(samples=20):
    x = np.random.default_rng(0).normal(size=(samples, 6)).astype("float32") * 3 + 2
    return x, x[:, :2] ** 2


def with_random_weights(make):
    model = make()
    rng = np.random.default_rng(1)
    model.set_weights([rng.uniform(0.5, 2, size=w.shape) for w in model.get_weights()])
    return model


def norms(model):
    return [one for one in model._flatten_layers() if isinstance(one, STOCK)]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("to", KINDS)
def test_weights_statistics_names_and_outputs_are_kept(make, to):
    model = with_random_weights(make)
    x, _ = data()
    before = [(v, v.path, v.numpy()) for v in model.weights]
    names = [norm.name for norm in norms(model)]
    outputs = model(x).numpy()
    assert convert_batch_norm(model, to=to) is model
    assert {norm.synchronized for norm in norms(model)} == {KINDS[to]}
    assert [norm.name for norm in norms(model)] == names
    assert {id(v) for v in model.weights} == {id(v) for v, _, _ in before}
    for variable, path, value in before:
        assert variable.path == path
        np.testing.assert_array_equal(variable.numpy(), value)
    np.testing.assert_array_equal(model(x).numpy(), outputs)


def test_a_compiled_model_goes_on_training_with_its_optimizer():
    model = functional()
    x, y = data()
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    model.fit(x, y, verbose=0)
    model.predict(x, verbose=0)
    steps = int(model.optimizer.iterations)
    convert_batch_norm(model, to="synchronized")
    model.fit(x, y, verbose=0)
    assert int(model.optimizer.iterations) == 2 * steps


@pytest.mark.parametrize("to", KINDS)
def test_under_a_strategy(to):
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        model = functional()
    model = convert_batch_norm(model, to=to)
    for variable in model.variables:
        assert len(strategy.experimental_local_results(variable.value)) == 2
    assert model.distribute_strategy is strategy


class OwnStock(STOCK):
    pass


@pytest.mark.parametrize("make", [OwnStock, SyncBatchNormalization, lambda: STOCK(renorm=True)])
def test_layers_of_every_class_are_converted(make):
    model = keras.Sequential([keras.Input((3,)), make()])
    for to, synchronized in KINDS.items():
        convert_batch_norm(model, to=to)
        assert model.layers[0].synchronized == synchronized


def test_an_unknown_kind_is_refused():
    with pytest.raises(UserError, match="to is 'sync', but has to be \"synchronized\""):
        convert_batch_norm(functional(), to="sync")


def nested_model():
    frozen = layers.BatchNormalization(name="frozen")
    frozen.trainable = False
    inner = keras.Sequential(
        [layers.Input((4,)), layers.BatchNormalization(name="inner"), frozen], name="inner_model"
    )
    shared = layers.BatchNormalization(name="shared", synchronized=True)
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.LayerNormalization()(shared(shared(inner(inputs)))))


def test_frozen_and_synchronized_ones_do_not_train_on_one_replicas_samples():
    assert [norm.name for norm in unsynchronized_batch_norms(nested_model())] == ["inner"]
