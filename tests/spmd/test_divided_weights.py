"""Weights divided over the replicas: when they are gathered, and what a replica keeps."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.spmd import partition, program
from kdist.spmd.divided_variables import DividedVariable
from kdist.spmd.tensor_facts import StageNumber
from replicas import assert_close

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module", "small")

WIDTH, LAYERS = 8, 5
KERNEL = WIDTH * WIDTH * 4  # bytes


class Gathers:
    """The gathers of a step, by round, and the step's graph."""

    def __init__(self, monkeypatch, limit):
        self.rounds, self.programs = {}, []
        monkeypatch.setattr(partition, "WEIGHT_BYTES", limit)
        original = program.Program._gather_weights

        def gather(own, number):
            names = [tensor.op.name for _, tensor, _ in own._weights_of(number)]
            if names:
                self.rounds[number.round] = names
            self.programs.append(own)
            original(own, number)

        monkeypatch.setattr(program.Program, "_gather_weights", gather)


def step_of_layers(strategy, layers=LAYERS):
    """Return a traced training step of dense layers with an optimizer."""
    keras.utils.set_random_seed(0)

    def make():
        dense = [
            keras.layers.Dense(WIDTH, use_bias=False, activation="tanh", name=f"d{at}")
            for at in range(layers)
        ]
        return keras.Sequential([keras.Input((WIDTH,)), *dense])

    model = strategy.build(make)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.optimizer.build(model.trainable_variables)
    rows = np.zeros((6, WIDTH), "float32")

    @tf.function(autograph=False)
    def step(x, y):
        return strategy.run(model.train_step, args=((x, y),))

    return step.get_concrete_function(tf.constant(rows), tf.constant(rows)), model


@pytest.mark.parametrize("together", [1, 2, 3])
def test_weights_are_gathered_in_groups_and_again(monkeypatch, together):
    """A group has as many kernels as fit, and the backward pass gathers kernels again."""
    gathers = Gathers(monkeypatch, limit=together * KERNEL)
    step_of_layers(kdist.MirroredStrategy(replicas=2, shard_weights=True))
    groups = [{name.split("/d")[1][0] for name in names} for names in gathers.rounds.values()]
    forward = [set("01234"[at : at + together]) for at in range(0, LAYERS, together)]
    assert all(expected <= group for expected, group in zip(forward, groups, strict=False))
    assert all(len(group) <= together for group in groups)
    # The backward pass begins with the last group of the forward pass. The first layer's kernel has
    # no part in it, as the inputs need no gradient.
    later = set().union(*groups[len(forward) - 1 :])
    assert later == {"1", "2", "3", "4"}


def test_no_stage_keeps_a_whole_weight(monkeypatch):
    """A whole weight is an argument of stages of its round, and no result of a stage."""
    gathers = Gathers(monkeypatch, limit=KERNEL)
    step_of_layers(kdist.MirroredStrategy(replicas=2, shard_weights=True))
    made = gathers.programs[-1]
    for number, stage in made.stages.items():
        rounds = {key.round for key in stage.inputs if isinstance(key, program.GatheredWeight)}
        assert rounds <= {number.round}
        assert not [
            t for t in stage.outputs if t.shape == (WIDTH, WIDTH) and t.op.type == "Identity"
        ]


def test_a_gather_waits_for_the_stage_before_the_last_one(monkeypatch):
    gathers = Gathers(monkeypatch, limit=KERNEL)
    step, _ = step_of_layers(kdist.MirroredStrategy(replicas=2, shard_weights=True))
    made = gathers.programs[-1]
    rounds = sorted(gathers.rounds)
    assert len(rounds) > LAYERS
    for number in rounds[2:]:
        stage = made.stages[StageNumber(number, on_every_replica=True)]
        (key,) = [key for key in stage.inputs if isinstance(key, program.GatheredWeight)]
        whole = made._values(key)[0]
        waits, todo = set(), [whole.op]
        while todo:
            op = todo.pop()
            if op not in waits:
                waits.add(op)
                todo += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
        before = made.stages[StageNumber(number - 2, on_every_replica=True)]
        last = made.stages[StageNumber(number - 1, on_every_replica=True)]
        assert set(before.calls.values()) <= waits
        assert not set(last.calls.values()) & waits


def test_a_step_without_divided_weights_gathers_none(monkeypatch):
    gathers = Gathers(monkeypatch, limit=KERNEL)
    step_of_layers(kdist.MirroredStrategy(replicas=2, shard_optimizer=True))
    assert not gathers.rounds


def test_each_device_has_a_part():
    strategy = kdist.MirroredStrategy(replicas=4, shard_weights=True)
    with strategy.scope():
        layer = keras.layers.Dense(64)
        layer.build((None, 128))
        frozen = keras.layers.Dense(64, trainable=False)
        frozen.build((None, 128))
    for kernel in (layer.kernel, frozen.kernel):
        assert isinstance(kernel.value, DividedVariable)
        assert [part.shape for part in kernel.value.parts] == [(32, 64)] * 4
        assert [part.device[-5:] for part in kernel.value.parts] == [f"CPU:{n}" for n in range(4)]


def test_initial_values_are_those_of_one_device():
    made = []
    for strategy in (
        kdist.MirroredStrategy(replicas=1),
        kdist.MirroredStrategy(replicas=3, shard_weights=True),
    ):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            layer = keras.layers.Dense(7)
            layer.build((None, 9))
        made.append(layer.kernel.numpy())
    np.testing.assert_array_equal(*made)


def test_gradients_outside_of_steps():
    strategy = kdist.MirroredStrategy(replicas=2, shard_weights=True)
    with strategy.scope():
        variable = tf.Variable(tf.ones((4, 3)))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(tf.square(variable))
    np.testing.assert_array_equal(tape.gradient(value, variable), 2 * np.ones((4, 3)))


def test_shards_are_refused():
    with pytest.raises(UserError, match="shards=2 and shard_weights=True"):
        kdist.MirroredStrategy(replicas=2, shards=2, shard_weights=True)


def changed_weights(step, replicas):
    """Return two weights after a step of a batch that changes them."""
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_weights=True)
    rng = np.random.default_rng(1)
    with strategy.scope():
        weights = [tf.Variable(rng.normal(size=(WIDTH, WIDTH))) for _ in range(2)]

    @tf.function(autograph=False)
    def run(batch):
        strategy.run(step, args=(batch, *weights))

    rows = tf.data.Dataset.from_tensors(np.random.default_rng(0).normal(size=(7, WIDTH)))
    for batch in strategy.experimental_distribute_dataset(rows):
        run(batch)
    return weights


def update(compute, *variables, between=lambda: None):
    """Descend along the gradient of a loss, after a change between the passes."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.sin(compute()))
        between()
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        if gradient is not None:
            variable.assign_sub(gradient)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    "compute",
    [
        lambda x, w, v: tf.concat([x, x], 1) @ tf.concat([w, v], 0),
        lambda x, w, v: tf.tile(x, (1, 2)) @ tf.tile(w, (2, 1)),
        lambda x, w, v: x @ w + tf.concat([v, v, v], 0)[: tf.shape(x)[0]],
        lambda x, w, v: tf.tile(x, (1, 4)) @ tf.reshape(tf.tanh(w), (4 * WIDTH, WIDTH // 4))[:, :1],
        lambda x, w, v: tf.reshape(x @ tf.reshape(w, (WIDTH, 2, -1))[:, 0], (-1, 2, WIDTH // 4)),
    ],
)
def test_weights_of_several_divisions(replicas, compute):
    """Parts of weights that are put together, repeated or reshaped are gathered like any rows."""

    def step(x, w, v):
        update(lambda: compute(x, w, v), w, v)

    assert_close(changed_weights(step, replicas), changed_weights(step, 1), atol=1e-12)


def three_layers(x, w, v):
    return tf.tanh(tf.tanh(x @ w) @ v) @ w


def two_updates(x, w, v):
    for _ in range(2):
        update(lambda: three_layers(x, w, v), w, v)


def changed_between_the_passes(x, w, v):
    update(lambda: three_layers(x, w, v), w, v, between=lambda: v.assign(w - v))


@pytest.mark.parametrize("step", [two_updates, changed_between_the_passes])
def test_weights_that_change_within_a_step(step, monkeypatch):
    """A gather takes the value of its read: the backward pass, the value of the forward pass."""
    gathers = Gathers(monkeypatch, limit=2 * KERNEL)
    assert_close(changed_weights(step, 3), changed_weights(step, 1), atol=1e-12)
    assert len(gathers.rounds) > 3


def test_saved_models_are_loaded_in_the_scope(tmp_path):
    with kdist.MirroredStrategy(replicas=2, shard_weights=True).scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(7)])
        model.export(tmp_path / "served", verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / "served"))
        kernels = [each.numpy() for each in loaded.variables if each.shape == (6, 7)]
        np.testing.assert_array_equal(kernels[0], model.layers[0].kernel)
