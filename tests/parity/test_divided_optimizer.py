"""The optimizer's state divided over the replicas: the model that one replica gives."""

import harness
import kdist
import keras
import numpy as np
import optimizer_cases
import pytest
import tensorflow as tf
from cases import CASES, on_one_replica
from kdist.spmd import divided_variables

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")
FAST = (
    "optimizer_Adam",
    "optimizer_LossScaleOptimizer",
    "optimizer_Muon",
    "accumulation_clipnorm_bn_uneven",
    "ema_overwrite_uneven",
    "embedding_accumulation_uneven",
    "custom_step_clipped_and_accumulated",
)
NAMES = (
    *(name for name in optimizer_cases.CASES if name not in optimizer_cases.OF_CALLBACKS),
    "embedding_accumulation_uneven",
    "embedding_global_clipnorm_uneven",
    "custom_step_clipped_and_accumulated",
    "mixed_float16",
    "steps_per_execution_accumulation_clip",
    "batch_by_batch",
    "compiled_outside_the_scope_loss_scale",
)


def check(name, replicas, **options):
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_optimizer=True)
    expected = harness.train(CASES[name], **options) if options else on_one_replica(name)
    got = harness.train(CASES[name], strategy, **options)
    harness.assert_same(CASES[name], expected, got)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        pytest.param(name, 2 + number % 3, marks=() if name in FAST else pytest.mark.slow)
        for number, name in enumerate(NAMES)
    ],
)
def test_two_to_four_replicas_give_what_one_gives(name, replicas):
    check(name, replicas)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["optimizer_Adam", "accumulation_clipnorm_bn_uneven"])
def test_compiled_by_xla(name):
    check(name, replicas=3, jit_compile=True)


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_a_device_has_its_part_of_the_state(replicas):
    """All but the smallest variables are divided: 0.3 % are biases."""
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_optimizer=True)
    layers = [keras.layers.Dense(100), keras.layers.Dense(250), keras.layers.Dense(40)]
    model = strategy.build(lambda: keras.Sequential([keras.Input((300,)), *layers]))
    with strategy.scope():
        optimizer = keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2, amsgrad=True)
        optimizer.build(model.trainable_variables)
    whole = 5 * sum(tf.size(v).numpy() for v in model.trainable_variables) * 4
    on_device = dict.fromkeys(strategy.devices, 0)
    for variable in optimizer.variables:
        value = variable.value
        is_divided = isinstance(value, divided_variables.DividedVariable)
        for device, part in zip(
            on_device, value.parts if is_divided else value.values, strict=True
        ):
            on_device[device] += tf.size(part).numpy() * part.dtype.size
    assert max(on_device.values()) <= 1.1 * whole / replicas
    assert sum(on_device.values()) >= whole


def test_explain_shows_the_memory_of_divided_variables():
    found = {}
    for name in (None, "shard_optimizer", "shard_weights"):
        strategy = kdist.MirroredStrategy(replicas=2, **({name: True} if name else {}))
        dense = keras.layers.Dense(64)
        model = strategy.build(lambda: keras.Sequential([keras.Input((100,)), dense]))  # noqa: B023
        model.compile("adam", "mse")
        found[name] = kdist.explain(model, (np.zeros((8, 100)), np.zeros((8, 64))))
    ordinary, state, weights = found.values()
    kernel = 100 * 64 * 4
    assert ordinary.divided == state.divided == weights.divided
    assert (
        ordinary.divided
        == (weights.weights, state.optimizer)
        == (
            ordinary.weights - kernel // 2,
            ordinary.optimizer - kernel,
        )
    )
    assert weights.optimizer == state.optimizer
    assert "weights 25.9 kB (13.1 kB with shard_weights)" in str(ordinary)
    assert "optimizer 51.7 kB (26.1 kB with shard_optimizer)" in str(ordinary)
    assert "shard_optimizer" not in str(state)
    assert state.step.divided_share == 1
    assert state.step.work.repeated < ordinary.step.work.repeated / 2
    assert "shard_weights" not in str(weights)
