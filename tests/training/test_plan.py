import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist.training.config import TrainConfig, make_plan


@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 60_000))
def test_an_epochs_steps_take_every_image_once(replicas, batch_size, images):
    plan = make_plan(TrainConfig(batch_size=batch_size, val_batch_size=7), replicas=replicas)
    assert plan.global_batch == replicas * batch_size
    assert plan.validation_batch == replicas * 7
    steps = plan.steps_per_epoch(images)
    assert (steps - 1) * plan.global_batch < images <= steps * plan.global_batch


@pytest.mark.parametrize(
    ("rule", "optimizer", "factor"),
    [("linear", "sgd", 4), ("sqrt", "sgd", 2), ("none", "sgd", 1), ("auto", "adam", math.sqrt(4))],
)
def test_the_learning_rate_follows_the_replicas(rule, optimizer, factor):
    config = TrainConfig(base_lr=0.01, lr_rule=rule, optimizer=optimizer)
    assert make_plan(config, replicas=4).learning_rate == pytest.approx(0.01 * factor)
