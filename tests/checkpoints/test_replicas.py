"""A training that is resumed on another number of replicas ends the same up to rounding."""

import keras
import numpy as np
import pytest
from kdist.callbacks import Checkpoint
from resumed_training import STEPS, Kill, KilledError, Training, compiled

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


class Largest(keras.metrics.Metric):
    """No sum."""

    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(shape=(), initializer=lambda *_, **__: -np.inf, name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self):
        return self.value + 0.0

    def reset_state(self):
        self.value.assign(-np.inf)


def adam():
    return keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)


def training(replicas):
    keras.utils.set_random_seed(0)
    return Training(compiled(replicas, adam, metrics=["accuracy", Largest]))


def test_one_two_four_three_and_one_replicas(tmp_path):
    """Amid epochs and between them, with dropout, averages and accumulation."""
    expected = training(1).uninterrupted()
    for replicas, steps in [(1, 3), (2, STEPS - 1), (4, 4), (3, 3)]:
        with pytest.raises(KilledError):
            training(replicas).fit(Kill(steps), Checkpoint(tmp_path, every_steps=1, verbose=0))
    found = training(1).resumed(tmp_path)
    for name, value in expected.values.items():
        np.testing.assert_allclose(found.values[name], value, rtol=0, atol=1e-6, err_msg=name)
    for name, value in expected.history.items():
        np.testing.assert_allclose(found.history[name], value, rtol=1e-5, err_msg=name)
