"""The learning rate of a run at every step, in closed form."""

import numpy as np
import pytest
from kdist.errors import UserError
from kdist.training.config import TrainConfig
from kdist.training.schedule import run_schedule


@pytest.mark.parametrize(("warmup", "steps", "every"), [(0, 0, 12), (0.5, 4, 12), (1.5, 12, 12)])
def test_exponential_is_a_staircase_after_the_warm_up(warmup, steps, every):
    config = TrainConfig(
        schedule="exponential", decay_epochs=1.5, decay_rate=0.3, warmup_epochs=warmup, epochs=9
    )
    schedule = run_schedule(config, 0.8, steps_per_epoch=8)
    rates = [float(schedule(step)) for step in range(72)]
    expected = [
        0.8 * step / steps if step < steps else 0.8 * 0.3 ** ((step - steps) // every)
        for step in range(72)
    ]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


@pytest.mark.parametrize("epochs", [1e30, 1e308])
def test_it_may_never_fall(epochs):
    schedule = run_schedule(
        TrainConfig(schedule="exponential", decay_epochs=epochs), 0.5, steps_per_epoch=80
    )
    assert float(schedule(10**6)) == 0.5


def test_it_falls_after_a_step_at_least():
    config = TrainConfig(schedule="exponential", decay_epochs=0.01, decay_rate=0.5)
    schedule = run_schedule(config, 1.0, steps_per_epoch=8)
    assert [float(schedule(step)) for step in range(4)] == [1, 0.5, 0.25, 0.125]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "exponential"}, "schedule=exponential needs decay_epochs"),
        ({"decay_epochs": 3}, "decay_epochs=3.0 does nothing with schedule=constant"),
        ({"schedule": "lab", "decay_rate": 0.5}, "decay_rate=0.5 does nothing with schedule=lab"),
        ({"schedule": "exponential", "decay_epochs": 0}, "decay_epochs has to be above 0"),
        ({"decay_rate": 1.0}, "decay_rate has to be above 0 and below 1"),
        ({"ema_warmup": True}, "ema_warmup=True does nothing without a moving average"),
    ],
)
def test_settings_that_do_nothing_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        TrainConfig(**options)
