"""Descriptions of steps that workers compare: operations with their numbers, without workers."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd.explanation import describe_plan

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")

ROWS = np.ones((4, 6, 6, 1), "f4")


class Own(keras.layers.Layer):
    """Has numbers that no configuration has, one of them inside a loop."""

    def __init__(self, factor, power):
        super().__init__()
        self.factor, self.power = factor, power

    def call(self, x):
        _, y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y * self.power), (0, x))
        return self.factor * y


def recorded():
    """A strategy, and the texts that its workers would compare, as it plans steps."""
    strategy, texts = kdist.MirroredStrategy(replicas=2), []
    strategy.compare_plan = lambda plan: texts.extend(describe_plan(plan))
    return strategy, texts


def step_of(
    *,
    others=0,
    constraint=1.0,
    dropout=0.5,
    epsilon=1e-3,
    factor=2.0,
    from_logits=True,
    loss_weights=1.0,
    momentum=0.9,
    padding="same",
    power=3.0,
    rate=0.1,
    slope=0.2,
    trainable=True,
):
    """The texts that workers compare of the training step of a model with these settings."""
    for _ in range(others):  # which take the next names
        keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dropout(0.1)])
    keras.utils.set_random_seed(1)
    strategy, texts = recorded()

    def make():
        layers = keras.layers
        norm = keras.constraints.MaxNorm(constraint)
        return keras.Sequential(
            [
                keras.Input((6, 6, 1)),
                layers.Conv2D(2, 3, padding=padding, kernel_constraint=norm, trainable=trainable),
                layers.BatchNormalization(epsilon=epsilon),
                layers.LeakyReLU(slope),
                layers.Dropout(dropout),
                Own(factor, power),
                layers.GlobalAveragePooling2D(),
                layers.Dense(2),
            ]
        )

    model = strategy.build(make)
    schedule = keras.optimizers.schedules.ExponentialDecay(rate, 10, 0.9)
    with strategy.scope():
        model.compile(
            keras.optimizers.SGD(schedule, momentum=momentum),
            keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits),
            loss_weights=[loss_weights],
        )
    model.fit(ROWS, np.zeros(4), verbose=0)
    return texts


@pytest.fixture(scope="module")
def step():
    return step_of()


def test_a_model_made_after_others_has_the_same_step(step):
    assert step_of(others=2) == step


def test_numbers_of_the_model_are_those_of_its_operations(step):
    other = step_of(
        constraint=1.5,
        dropout=0.4,
        epsilon=1e-4,
        factor=2.5,
        loss_weights=0.5,
        momentum=0.8,
        power=3.5,
        rate=0.2,
        slope=0.3,
    )
    pairs = [(one, two) for one, two in zip(step, other, strict=True) if one != two]
    for number, its in [("1", "1.5"), ("0.5", "0.4"), ("2", "2.5"), ("1", "0.5"), ("0.9", "0.8")]:
        assert any(f", {number})" in one and f", {its})" in two for one, two in pairs), its
    for number, its in [("0.1", "0.2"), ("alpha 0.2", "alpha 0.3"), ("While(", "While(")]:
        assert any(number in one and its in two for one, two in pairs), its


@pytest.mark.parametrize(
    "setting", [{"from_logits": False}, {"padding": "valid"}, {"trainable": False}], ids=str
)
def test_settings_that_change_the_operations_are_compared(step, setting):
    assert step_of(**setting) != step


def texts_of(long, token=""):
    """The texts of a step that has a long constant."""

    @tf.function
    def run(x):
        tf.debugging.assert_positive(x, message=token)
        one = tf.cast(tf.gather(tf.constant(long), 3), tf.float32)
        return tf.py_function(lambda x: x, [x], tf.float32) + one

    strategy, found = recorded()
    strategy.run(run, (tf.ones(4),))
    return found


def test_names_that_processes_number_are_not_compared():
    numbers = np.linspace(-1, 1, 100, dtype="f4")
    assert texts_of(numbers, "one 1") == texts_of(numbers, "two 2")


@pytest.mark.parametrize("place", [0, 57, 99])
def test_long_constants_are_compared_but_not_their_last_digits(place):
    numbers = np.random.default_rng(1).normal(size=100).astype("f4")
    other = numbers.copy()
    other[place] += 0.5
    assert texts_of(other) != texts_of(numbers)
    assert texts_of(np.nextafter(numbers, 9)) == texts_of(numbers)

    whole = np.arange(100)
    other = whole.copy()
    other[place] += 1
    assert texts_of(other) != texts_of(whole)
