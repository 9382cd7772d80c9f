"""Parts of a model that share a name come back each as itself, or the model is refused."""

import kdist
import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.strategies.rebuild_model import part_names

random = np.random.default_rng(0)
X = random.normal(size=(16, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def strategy():
    return kdist.MirroredStrategy(replicas=2)


def weighted(weight):
    def loss(y_true, y_pred):
        return weight * keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    return loss


def scaled(factor):
    def scale(x):
        return factor * keras.ops.tanh(x)

    return scale


def relu(x):
    return 3 * keras.ops.relu(x)


def mean_squared_error(y_true, y_pred):
    return weighted(5.0)(y_true, y_pred)


def block(function):
    class Block(keras.layers.Layer):
        def call(self, inputs):
            return function(inputs)

    return Block()


class Named(keras.layers.Layer):
    """A layer that describes its function by its `__name__`."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = keras.activations.get(function)

    def call(self, inputs):
        return self.function(inputs)

    def get_config(self):
        return {**super().get_config(), "function": self.function.__name__}


def sequential(*layers, loss="mse", metrics=()):
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", loss, metrics=list(metrics))
    return model


def two_outputs():
    inputs = keras.Input((4,))
    outputs = [keras.layers.Dense(1, name=name)(inputs) for name in "ab"]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", [weighted(0.1), weighted(10.0)])
    return model


dense = keras.layers.Dense
SHARED = {
    "activations": lambda: sequential(dense(8, scaled(0.1)), dense(1, scaled(10.0))),
    "losses": two_outputs,
    "loss and metric": lambda: sequential(loss=weighted(3.0), metrics=[weighted(2.0)]),
    "activation of Keras": lambda: sequential(dense(8, relu), dense(8, "relu")),
    "loss of Keras": lambda: sequential(loss="mean_squared_error", metrics=[mean_squared_error]),
    "classes": lambda: sequential(block(lambda x: 2 * x), block(lambda x: x + 5)),
    "Lambda layers": lambda: sequential(*map(keras.layers.Lambda, (scaled(0.1), scaled(3.0)))),
}


@pytest.mark.parametrize("kind", SHARED)
def test_parts_of_one_name_come_back_each_as_itself(strategy, kind):
    model = SHARED[kind]()
    y = [Y, Y] if kind == "losses" else Y
    made = strategy.build(model)
    results = [one.evaluate(X, y, verbose=0, return_dict=True) for one in (made, model)]
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    assert strategy.build(made) is made
    assert relu.__name__ == "relu"
    assert mean_squared_error.__name__ == "mean_squared_error"


def registered(factor):
    return keras.saving.register_keras_serializable("shared")(scaled(factor))


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        (lambda: [Named(scaled(1.0)), Named(scaled(3.0))], "scale .* and .*scale .* have one name"),
        (lambda: [Named(relu), dense(4, "relu")], "relu .* and Keras's relu have one name"),
        (lambda: [dense(4, registered(1.0)), dense(4, registered(3.0))], "shared>scale, and so is"),
    ],
)
def test_parts_that_cannot_be_told_apart_are_refused(strategy, layers, why):
    with pytest.raises(UserError, match=rf"cannot be made anew .*{why}.*: pass a function"):
        strategy.build(sequential(*layers()))


def test_a_name_of_its_own_stays():
    """A layer may look up its function by that name in a table of its own."""
    first, second, own = scaled(1.0), scaled(2.0), weighted(1.0)
    names = part_names([first, own, second, own, relu])
    assert names.shared == {"scale 1": first, "scale 2": second, "relu 3": relu}
    assert names.custom_objects == {"loss": own, **names.shared}
    with names.used():
        assert [one.__name__ for one in (first, own, relu)] == ["scale 1", "loss", "relu 3"]
    assert [one.__name__ for one in (first, own, relu)] == ["scale", "loss", "relu"]


def test_a_change_of_trainable_needs_another_compile(strategy):
    model = sequential(dense(8))
    model.compile("adam", "mse")
    model.fit(X, Y, verbose=0)
    model.layers[0].trainable = False
    with pytest.raises(UserError, match="its optimizer has .* changed trainable, compile the mod"):
        strategy.build(model)
    model.compile("adam", "mse")
    assert not strategy.build(model).layers[0].trainable
