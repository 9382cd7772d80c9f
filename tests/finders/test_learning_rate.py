import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import TrainingError, UserError
from kdist.tools.find.learning_rate import find_learning_rate
from kdist.tools.find.rate_curve import LEAST_RATE, MOST_RATE, space_rates

STEPS = 24


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 6))
    return (x, x @ random.normal(size=(6, 2))), None


def model_with(rate, *layers, steps=1):
    def build():
        model = keras.Sequential([keras.Input((6,)), *(make() for make in layers)])
        model.add(keras.layers.Dense(2, kernel_initializer="ones", use_bias=False))
        model.compile(keras.optimizers.SGD(rate), "mse", steps_per_execution=steps)
        return model

    return build


def test_the_losses_are_those_of_numpy(float64):
    """Least squares by gradient descent with a rate that rises, up to its explosion."""
    (x, y), _ = data()

    def one_batch():
        return (x, y), None

    found = find_learning_rate(
        model_with(0.1), one_batch, batch_size=60, replicas=1, least=1e-3, most=200.0, steps=STEPS
    )
    weights, expected = np.ones((6, 2)), []
    for rate in space_rates(1e-3, 200.0, STEPS)[: len(found.losses)]:
        off = x @ weights - y
        expected.append(np.mean(off**2))
        weights = weights - rate * 2 * x.T @ off / off.size
    np.testing.assert_allclose(found.losses, expected, rtol=1e-9)
    assert found.diverged
    assert len(found.losses) < STEPS
    assert not found.doubt


def test_equal_on_any_number_of_replicas(float64):
    build = model_with(0.1, keras.layers.BatchNormalization)
    curves = [
        find_learning_rate(
            build, data, batch_size=24 // replicas, replicas=replicas, least=1e-4, steps=STEPS
        )
        for replicas in (1, 3)
    ]
    one, several = curves
    assert several.rates == one.rates
    np.testing.assert_allclose(several.losses, one.losses, rtol=1e-9)
    assert len(one.losses) > 10


def test_a_schedule_is_replaced_and_each_step_is_seen():
    schedule = keras.optimizers.schedules.ExponentialDecay(5.0, 1, 0.5)
    found, plain = (
        find_learning_rate(
            model_with(rate, steps=steps),
            data,
            batch_size=20,
            replicas=1,
            least=1e-5,
            most=1e-3,
            steps=STEPS,
        )
        for rate, steps in ((schedule, 3), (0.1, 1))
    )
    assert len(found.losses) == STEPS
    np.testing.assert_allclose(found.losses, plain.losses, rtol=1e-5)
    assert not found.diverged


def test_an_optimizer_that_has_counted_steps_begins_at_the_least_rate():
    def trained():
        model = model_with(0.1)()
        model.optimizer.build(model.trainable_variables)
        model.optimizer.iterations.assign(1000)
        return model

    options = {"batch_size": 60, "replicas": 1, "least": 1e-4, "most": 1e-2, "steps": STEPS}
    found = find_learning_rate(trained, data, **options)
    np.testing.assert_allclose(
        found.losses, find_learning_rate(model_with(0.1), data, **options).losses, rtol=1e-6
    )


class Two(keras.Model):
    """Two optimizers, and a loss for each."""

    def __init__(self):
        super().__init__()
        self.one, self.other = (
            keras.layers.Dense(2, kernel_initializer="ones", use_bias=False) for _ in range(2)
        )

    def compile(self):
        super().compile()
        self.slow, self.fast = keras.optimizers.SGD(0.0), keras.optimizers.SGD(0.1)

    def train_step(self, batch):
        x, y = batch
        losses = {}
        for name, layer in (("slow", self.one), ("fast", self.other)):
            with tf.GradientTape() as tape:
                losses[name] = keras.ops.mean(keras.ops.square(layer(x) - y))
            weights = layer.trainable_variables
            getattr(self, name).apply(tape.gradient(losses[name], weights), weights)
        return losses


def compiled_two():
    model = Two()
    model.compile()
    return model


@pytest.mark.filterwarnings("ignore:Two has its own train_step")
def test_a_model_with_several_optimizers():
    with pytest.raises(UserError, match="the model has 3 optimizers"):
        find_learning_rate(compiled_two, data, replicas=1, steps=STEPS)


class Nameless(keras.Sequential):
    """A step that reports no loss."""

    def train_step(self, batch):
        return {"error": super().train_step(batch)["loss"]}


@pytest.mark.filterwarnings("ignore:Nameless has its own train_step")
def test_a_step_that_reports_no_loss():
    def build():
        model = Nameless([keras.Input((6,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    with pytest.raises(UserError, match="train_step returns only error: return 'loss', too"):
        find_learning_rate(build, data, replicas=1, steps=STEPS)


def test_a_loss_that_is_no_number():
    def broken():
        (x, y), _ = data()
        return (x * np.nan, y), None

    with pytest.raises(TrainingError, match="loss is nan at the first step"):
        find_learning_rate(model_with(0.1), broken, replicas=1, steps=STEPS)


def drawn():
    return (np.random.normal(size=(20, 6)), np.random.normal(size=(20, 2))), None


def build_beside():
    return model_with(0.1)()


def test_what_the_data_draw_is_seeded():
    options = {"replicas": 1, "most": 1e-3, "steps": 10}
    first, again, other = (
        find_learning_rate(build_beside, drawn, seed=seed, **options).losses for seed in (3, 3, 4)
    )
    assert first == again != other
    with pytest.raises(UserError, match="data='drawn'; expected a function"):
        find_learning_rate(build_beside, "drawn", **options)


def test_the_default_range_is_that_of_the_command_line():
    given = inspect.signature(find_learning_rate).parameters
    assert (given["least"].default, given["most"].default) == (LEAST_RATE, MOST_RATE)


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"batch_size": 0.5}, {"steps": 3}, {"least": 1.0, "most": 0.1}]
)
def test_what_is_refused(wrong):
    with pytest.raises(UserError):
        find_learning_rate(model_with(0.1), data, **wrong)


def test_a_model_that_is_not_compiled():
    with pytest.raises(UserError, match="not compiled"):
        find_learning_rate(lambda: keras.Sequential([keras.layers.Dense(1)]), data, replicas=1)
