"""The optimizers and schedules of `kdist train`."""

import kdist.optimizers
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.errors import UserError
from kdist.optimizers.optimizer_choices import (
    OPTIMIZERS,
    RULES_OF_KERAS_OPTIMIZERS,
    check_momentum,
    l2_factor,
    make_optimizer,
)
from kdist.optimizers.scaling import learning_rate_rule_of
from kdist.optimizers.schedules import make_schedule


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_makes_its_optimizer_and_decays_once(name):
    optimizer = make_optimizer(name, 0.1, momentum=None, weight_decay=0.01)
    own = {one: getattr(kdist.optimizers, one) for one in dir(kdist.optimizers)}
    classes = {one.lower(): kind for one, kind in {**vars(keras.optimizers), **own}.items()}
    of_name = {"momentum": "sgd"}.get(name, name)
    assert type(optimizer) is classes[of_name]
    decay = optimizer.weight_decay or getattr(optimizer, "weight_decay_rate", 0)
    assert sorted([decay, l2_factor(name, 0.01)]) == [0, 0.01]


@pytest.mark.parametrize(
    ("name", "momentum", "expected"),
    [("sgd", None, 0), ("sgd", 0.8, 0.8), ("momentum", None, 0.9), ("lars", 0.5, 0.5)],
)
def test_momentum(name, momentum, expected):
    check_momentum(name, momentum)
    optimizer = make_optimizer(name, 0.1, momentum=momentum, weight_decay=0)
    assert optimizer.momentum == expected
    if name != "lars":
        assert optimizer.nesterov == (expected > 0)


@pytest.mark.parametrize("name", ["adam", "adamw", "novograd"])
def test_a_momentum_that_would_be_ignored_is_refused(name):
    check_momentum(name, None)
    with pytest.raises(UserError, match="remove momentum"):
        check_momentum(name, 0.9)


def test_an_unknown_name_is_refused():
    with pytest.raises(UserError, match="optimizer is 'sdg', but has to be one of"):
        make_optimizer("sdg", 0.1, momentum=None, weight_decay=0)


def test_an_optimizer_has_the_rule_of_its_entry_and_no_other():
    assert {name: learning_rate_rule_of(name) for name in OPTIMIZERS} == {
        n: o.rule for n, o in OPTIMIZERS.items()
    }
    assert not RULES_OF_KERAS_OPTIMIZERS.keys() & OPTIMIZERS.keys()


def exponential(rate, *, warmup_epochs=0.0, epochs=9, **decay):
    options = {"epochs": epochs, "steps_per_epoch": 8, "warmup_epochs": warmup_epochs}
    return make_schedule("exponential", rate, **options, **decay)


@pytest.mark.parametrize(("warmup", "steps", "every"), [(0, 0, 12), (0.5, 4, 12), (1.5, 12, 12)])
def test_exponential_is_a_staircase_after_the_warm_up(warmup, steps, every):
    schedule = exponential(0.8, decay_epochs=1.5, decay_rate=0.3, warmup_epochs=warmup)
    rates = [float(schedule(step)) for step in range(72)]
    expected = [
        0.8 * step / steps if step < steps else 0.8 * 0.3 ** ((step - steps) // every)
        for step in range(72)
    ]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def the_labs_own_rate(step, rate, steps_per_epoch):
    """The two callbacks of the course's second lab, as code."""
    epoch = step // steps_per_epoch
    factor = 1 if epoch < 15 else 0.1 if epoch < 25 else 0.01 if epoch < 35 else 0.001
    return rate * factor * min(1, step / (5 * steps_per_epoch))


@given(st.integers(1, 30), st.integers(0, 41), st.floats(0, 0.999))
def test_exponential_is_the_labs_staircase(steps_per_epoch, epoch, part):
    options = {"epochs": 42, "steps_per_epoch": steps_per_epoch, "warmup_epochs": 5}
    schedule = make_schedule("exponential", 0.4, decay_epochs=10, decay_rate=0.1, **options)
    step = epoch * steps_per_epoch + int(part * steps_per_epoch)
    expected = the_labs_own_rate(step, 0.4, steps_per_epoch)
    assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_exponential_falls_after_a_step_at_least():
    schedule = exponential(1.0, decay_epochs=0.01, decay_rate=0.5)
    assert [float(schedule(step)) for step in range(4)] == [1, 0.5, 0.25, 0.125]


def test_a_warm_up_of_all_steps_is_refused():
    with pytest.raises(UserError, match="warmup_epochs=1.95 takes 16 of the run's 16 steps"):
        exponential(1.0, epochs=2, warmup_epochs=1.95, decay_epochs=1, decay_rate=0.5)


@pytest.mark.parametrize("epochs", [1e30, 1e308])
def test_exponential_may_never_fall(epochs):
    assert float(exponential(0.5, decay_epochs=epochs, decay_rate=0.1)(10**6)) == 0.5
