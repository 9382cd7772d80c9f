import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.schedules import WarmUp, lab_schedule


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


def the_labs_own_rate(step, rate, steps_per_epoch, warmup_epochs):
    """Its two callbacks, as code."""
    epoch = step // steps_per_epoch
    factor = 1 if epoch < 15 else 0.1 if epoch < 25 else 0.01 if epoch < 35 else 0.001
    return rate * factor * min(1, step / (warmup_epochs * steps_per_epoch or 1e-9))


@given(st.integers(1, 30), st.sampled_from([0, 1, 5]), st.integers(0, 41), st.floats(0, 0.999))
def test_the_labs_staircase(steps_per_epoch, warmup_epochs, epoch, part):
    schedule = lab_schedule(0.4, steps_per_epoch=steps_per_epoch, warmup_epochs=warmup_epochs)
    step = epoch * steps_per_epoch + int(part * steps_per_epoch)
    expected = the_labs_own_rate(step, 0.4, steps_per_epoch, warmup_epochs)
    if step or warmup_epochs:
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_a_resumed_run_finds_the_rate_in_the_optimizers_step():
    optimizer = keras.optimizers.SGD(lab_schedule(0.4, steps_per_epoch=10, warmup_epochs=2))
    read = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    for step, rate in ((10, 0.2), (149, 0.4), (150, 0.04), (350, 0.0004)):
        read.iterations.assign(step)
        assert float(read.learning_rate) == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize(
    "values",
    [
        {"steps_per_epoch": 0},
        {"warmup_epochs": 15},
        {"warmup_epochs": -1},
        {"rate": "1"},
        {"rate": -0.1},
        {"rate": math.nan},
    ],
)
def test_a_staircase_without_room_is_refused(values):
    with pytest.raises(UserError):
        lab_schedule(**{"rate": 0.1, "steps_per_epoch": 10} | values)
