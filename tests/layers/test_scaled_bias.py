"""A bias with a factor learns as a plain one with a larger rate."""

import keras
import numpy as np
import pytest
from kdist.errors import UserError
from kdist.layers import ScaledBias


def test_sgd_moves_it_as_a_rate_of_its_own_would():
    """Against NumPy: Nesterov momentum, with 64 times the rate for the bias."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(16, 3)), random.normal(size=(16, 3))
    inputs = keras.Input((3,))
    model = keras.Model(inputs, ScaledBias(8, dtype="float64")(inputs))
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9, nesterov=True), "mse")
    bias, velocity = np.zeros(3), np.zeros(3)
    for _ in range(5):
        model.train_on_batch(x, y)
        gradient = 2 * np.mean(x + bias - y, 0) / 3
        velocity = 0.9 * velocity - 64 * 1e-3 * gradient
        bias = bias + 0.9 * velocity - 64 * 1e-3 * gradient
        np.testing.assert_allclose(model(x), x + bias, rtol=1e-5, atol=1e-6)


def test_it_is_saved_with_its_factor(tmp_path):
    model = keras.Sequential([keras.Input((4, 4, 2)), ScaledBias(3)])
    model.layers[0].bias.assign([1.0, -2.0])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(np.zeros((1, 4, 4, 2)))[0, 0, 0], [3, -6])


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), "8", True])
def test_factors(factor):
    with pytest.raises(UserError, match="is not a finite number above 0"):
        ScaledBias(factor)
