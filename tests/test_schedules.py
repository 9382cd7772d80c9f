import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdist.errors import UserError
from kdist.schedules import WarmUp


@given(st.floats(1e-4, 1), st.integers(0, 20), st.floats(0, 1), st.integers(0, 60))
def test_a_constant_rate_is_reached_on_a_line(rate, steps, start, step):
    done = min(step / steps, 1) if steps else 1
    expected = start + (rate - start) * done
    assert float(WarmUp(rate, steps=steps, start=start)(step)) == pytest.approx(expected, rel=1e-5)


def test_the_schedule_starts_when_the_warm_up_ends():
    schedule = WarmUp(keras.optimizers.schedules.CosineDecay(0.4, 100), steps=10)
    rates = [float(schedule(step)) for step in (0, 5, 10, 60, 110)]
    cosine = [0.4 * (1 + math.cos(math.pi * step / 100)) / 2 for step in (0, 50, 100)]
    np.testing.assert_allclose(rates, [0, 0.2, *cosine], atol=1e-7)


def test_saved_with_its_optimizer():
    decay = keras.optimizers.schedules.CosineDecay(0.4, 100)
    optimizer = keras.optimizers.SGD(WarmUp(decay, steps=10, start=0.1))
    read = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    for step in (0, 5, 50):
        read.iterations.assign(step)
        optimizer.iterations.assign(step)
        assert float(read.learning_rate) == float(optimizer.learning_rate)


@pytest.mark.parametrize("values", [{"steps": -1}, {"steps": 1.5}, {"steps": 1, "start": -1}])
def test_negative_values_are_refused(values):
    with pytest.raises(UserError):
        WarmUp(0.1, **values)
    for rate in (-0.1, float("nan"), "0.1", None):
        with pytest.raises(UserError):
            WarmUp(rate, steps=1)
