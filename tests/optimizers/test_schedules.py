"""The learning rate of a run at every step, in closed form."""

import numpy as np
import pytest
from kdist.errors import UserError
from kdist.optimizers.schedules import make_schedule


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


@pytest.mark.parametrize("epochs", [1e30, 1e308])
def test_it_may_never_fall(epochs):
    assert float(exponential(0.5, decay_epochs=epochs, decay_rate=0.1)(10**6)) == 0.5


def test_it_falls_after_a_step_at_least():
    schedule = exponential(1.0, decay_epochs=0.01, decay_rate=0.5)
    assert [float(schedule(step)) for step in range(4)] == [1, 0.5, 0.25, 0.125]


def test_a_warm_up_of_all_steps_is_refused():
    with pytest.raises(UserError, match="warmup_epochs=1.95 is 16 of the run's 16 steps"):
        exponential(1.0, epochs=2, warmup_epochs=1.95, decay_epochs=1, decay_rate=0.5)
