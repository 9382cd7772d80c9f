"""What the workers compare of a model, and what may differ: without processes."""

import json

import keras
import numpy as np
import pytest
from kdist.distribute.agreement import digest, first_difference, plain_config, settings


def functional(dropout=0.5, l2=0.1, skip=True, function=None, policy="float32"):
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, activation="relu")])
    x = inputs = keras.Input((4,))
    y = keras.layers.Dense(4, kernel_regularizer=keras.regularizers.L2(l2), dtype=policy)(x)
    x = keras.layers.Dropout(dropout)(inner(y))
    if function is not None:
        x = keras.layers.Lambda(function)(x)
    return keras.Model(inputs, keras.layers.Add()([x, y if skip else inputs]))


def compiled(optimizer="sgd", loss="mse", **options):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, loss, **options)
    return model


def difference(one, other):
    each = [json.loads(json.dumps(settings(model))) for model in (one, other)]
    return first_difference("", each)


def test_a_model_made_after_others_is_the_same():
    one = functional()
    keras.layers.Dense(3), keras.layers.Dropout(0.2)  # which take the next names
    other = functional()
    assert one.layers[1].name != other.layers[1].name
    assert difference(one, other) is None
    assert digest(settings(one)) == digest(settings(other))


@pytest.mark.parametrize(
    ("options", "path", "each"),
    [
        ({"dropout": 0.4}, "layers[3].rate", [0.5, 0.4]),
        ({"l2": 0.0}, "layers[1].kernel_regularizer.l2", [0.1, 0.0]),
        ({"policy": "mixed_float16"}, "layers[1].dtype", ["float32", "mixed_float16"]),
    ],
)
def test_a_difference_has_its_path(options, path, each):
    assert difference(functional(), functional(**options)) == (path, each)


def test_what_is_trained_is_compared():
    one, other = functional(), functional()
    other.layers[1].trainable = False
    first = "weights[0]", ["(4, 4) float32, trained", "(4, 4) float32"]
    found = difference(one, other)
    assert (found[0].lstrip("."), found[1]) == first


def test_another_graph_of_the_same_layers_differs():
    path, each = difference(functional(), functional(skip=False))
    assert path.startswith("layers[4].inbound_nodes")
    assert each == ["layer 1", "layer 0"]


def test_lambdas_are_compared_by_nothing_but_being_one():
    one, two = functional(function=lambda x: x), functional(function=lambda x: 2 * x)
    assert difference(one, two) is None


def test_optimizers_are_compared_but_for_a_plain_rate():
    sgd, decay = keras.optimizers.SGD, keras.optimizers.schedules.CosineDecay
    assert difference(compiled(sgd(0.1)), compiled(sgd(0.5))) is None
    path = "optimizer.learning_rate.initial_learning_rate"
    found = difference(compiled(sgd(decay(0.1, 9))), compiled(sgd(decay(0.5, 9))))
    assert found == (path, [0.1, 0.5])
    found = difference(compiled(sgd(0.1)), compiled(sgd(decay(0.5, 9))))
    assert found[0] == "optimizer.learning_rate"
    scaled = [keras.optimizers.LossScaleOptimizer(sgd(rate)) for rate in (0.1, 0.5)]
    assert difference(*map(compiled, scaled)) is None


def test_a_schedule_that_cannot_be_saved_is_compared_by_its_class():
    class Mine(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1

    class Other(Mine):
        pass

    def model(schedule, **options):
        return compiled(keras.optimizers.SGD(schedule(), **options))

    assert difference(model(Mine), model(Mine)) is None
    assert difference(model(Mine), model(Other)) == ("optimizer.learning_rate", ["Mine", "Other"])
    found = difference(model(Mine, momentum=0.9), model(Mine, momentum=0.8))
    assert found == ("optimizer.momentum", [0.9, 0.8])


def test_losses_are_compared_with_their_arguments():
    class Mine(keras.losses.Loss):
        def __init__(self, margin):
            super().__init__()
            self.margin = margin

        def call(self, y_true, y_pred):
            return self.margin

    found = difference(*(compiled(loss=keras.losses.Huber(delta)) for delta in (1.0, 0.1)))
    assert found == ("loss.delta", [1.0, 0.1])
    assert difference(*(compiled(loss=Mine(margin)) for margin in (1, 2))) == (
        "loss.margin",
        [1, 2],
    )
    found = difference(*(compiled(loss_weights=[weight]) for weight in (1.0, 5.0)))
    assert found == ("loss_weights[0]", [1.0, 5.0])
    found = difference(compiled(metrics=["mae"]), compiled(metrics=["mae", "mse"]))
    assert found == ("the length of metrics", [1, 2])


def test_a_model_without_a_configuration_is_compared_without():
    class Mine(keras.Model):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def get_config(self):
            raise NotImplementedError

    assert difference(Mine(keras.layers.Dense(1)), Mine(keras.layers.Dense(2))) is None


def test_what_may_differ_between_machines_is_left_out():
    def config(path, seed, noise):
        return {
            "vocabulary": path,
            "seed": seed,
            "kernel_initializer": {"class_name": "Constant", "config": {"value": seed}},
            "scale": 0.3 + noise,
            "mean": (np.linspace(0, 1, 100) + noise).tolist(),
        }

    one = plain_config(config("/data0/words.txt", 1, 0.0))
    other = plain_config(config("/data1/words.txt", 2, 1e-9))
    assert one != other
    assert first_difference("", [one, other]) is None
    shifted = plain_config(config("/data1/words.txt", 2, 0.1))
    assert first_difference("", [{"mean": one["mean"]}, {"mean": shifted["mean"]}]) is not None


def test_long_lists_of_words_are_compared():
    words = [f"word {number}" for number in range(1000)]
    one, other = (plain_config({"words": each}) for each in (words, [*words[:-1], "other"]))
    assert len(json.dumps(one)) < 100
    assert first_difference("", [one, other])[0] == "words.digest"


@pytest.mark.parametrize(
    ("each", "found"),
    [
        ([{"a": 1}, {"a": 1, "b": 2}], ("b", ["missing", 2])),
        ([1, 1.0], None),
        ([float("nan"), float("nan")], None),
        ([None, 0.0], ("", [None, 0.0])),
        ([[1, [2, 3]], [1, [2, 4]], [1, [2, 3]]], ("[1][1]", [3, 4, 3])),
    ],
)
def test_the_first_difference(each, found):
    assert first_difference("", each) == found
