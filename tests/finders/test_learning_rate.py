import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.finders.learning_rate import RisingRate, find_learning_rate
from kdist.finders.rate_curve import rates_of

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
    for rate in rates_of(1e-3, 200.0, STEPS)[: len(found.losses)]:
        off = x @ weights - y
        expected.append(np.mean(off**2))
        weights = weights - rate * 2 * x.T @ off / off.size
    np.testing.assert_allclose(found.losses, expected, rtol=1e-9)
    assert found.diverged
    assert len(found.losses) < STEPS
    assert found.is_sure


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


def test_the_rising_rate():
    rate = RisingRate(1e-6, 10.0, 50)
    values = [float(rate(step)) for step in range(50)]
    np.testing.assert_allclose(values, np.geomspace(1e-6, 10.0, 50), rtol=1e-4)
    assert RisingRate(**rate.get_config()).most == 10.0


@pytest.mark.parametrize("wrong", [{"batch_size": 0.5}, {"steps": 3}, {"least": 1.0, "most": 0.1}])
def test_what_is_refused(wrong):
    with pytest.raises(UserError):
        find_learning_rate(model_with(0.1), data, **wrong)


def test_a_model_that_is_not_compiled():
    with pytest.raises(UserError, match="not compiled"):
        find_learning_rate(lambda: keras.Sequential([keras.layers.Dense(1)]), data, replicas=1)
