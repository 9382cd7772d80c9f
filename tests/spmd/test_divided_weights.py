"""Weights divided over the replicas: when they are gathered, and what a replica keeps."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd import partition, program
from kdist.spmd.divided_variables import DividedVariable
from kdist.spmd.placements import REPLICATE, Partial
from kdist.spmd.plan import PlannedExchange
from kdist.spmd.replica_reductions import ONE_TERM
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
        original = program.Program._sent_values

        def sent(own, exchange):
            if exchange.is_weight:
                names = self.rounds.setdefault(exchange.stage.round, [])
                names.append(exchange.tensor.op.name)
            self.programs.append(own)
            return original(own, exchange)

        monkeypatch.setattr(program.Program, "_sent_values", sent)


def weights_read(stage):
    """Return the gathers of weights that are arguments of a stage."""
    results = [key for key in stage.inputs if isinstance(key, PlannedExchange)]
    return [key for key in results if key.is_weight]


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
        assert {key.stage.round for key in weights_read(stage)} <= {number.round}
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
        (key,) = weights_read(stage)
        whole = made._replica_values(key)[0]
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


def test_each_shard_has_a_part():
    strategy = kdist.MirroredStrategy(replicas=2, shards=4, shard_weights=True)
    with strategy.scope():
        variable = tf.Variable(np.arange(20.0).reshape(10, 2))
    assert [len(part.numpy()) for part in variable.parts] == [3, 3, 2, 2]
    assert [part.device[-5:] for part in variable.parts] == ["CPU:0", "CPU:1"] * 2
    variable.assign_add(tf.ones((10, 2), variable.dtype))
    np.testing.assert_array_equal(variable.numpy(), np.arange(20.0).reshape(10, 2) + 1)


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


# Tables

WORDS, SIZE = 1001, 4


def run_on_rows(strategy, step, rows):
    """Run a step for a batch of a known number of rows; return its results."""

    @tf.function(autograph=False)
    def run(batch):
        return strategy.run(step, args=(batch,))

    dataset = tf.data.Dataset.from_tensors(tf.constant(rows))
    (batch,) = strategy.experimental_distribute_dataset(dataset)
    return strategy.gather(run(batch), 0)


@pytest.fixture
def plans(monkeypatch):
    """Return the plans of the steps that are traced."""
    found = []
    original = partition._plan_step

    def plan(*args):
        found.append(original(*args)[0])
        return original(*args)

    monkeypatch.setattr(partition, "_plan_step", plan)
    return found


def kept_bits(variable, step, rows, replicas):
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_weights=True)
    with strategy.scope():
        table = tf.Variable(variable)
    result = run_on_rows(strategy, lambda batch: step(table, batch), rows)
    return result.numpy().tobytes(), table.numpy().tobytes()


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_looked_up_rows_have_the_bits_of_the_table(replicas, dtype):
    """Numbers that are not finite stay in their rows, and zeros keep their signs."""
    values = np.random.default_rng(0).normal(size=(WORDS, SIZE))
    values[::7, 0], values[3::11] = -0.0, np.nan
    values[5::13, 1], values[4, 2] = np.inf, -np.inf
    values = tf.cast(values, dtype)
    indices = np.random.default_rng(1).integers(0, WORDS, (7, 3))
    found, _ = kept_bits(values, lambda table, rows: tf.gather(table, rows), indices, replicas)
    assert found == tf.gather(values, indices).numpy().tobytes()


@pytest.mark.parametrize("change", ["scatter_add", "scatter_sub"])
def test_updates_of_rows_leave_all_other_rows(change):
    """Zeros keep their signs."""
    values = np.full((WORDS, SIZE), -0.0)
    indices = np.array([1, 700, 1, 999, 700])

    def update(table, rows):
        slices = tf.IndexedSlices(tf.ones((tf.shape(rows)[0], SIZE), "float64") / 3, rows)
        getattr(table, change)(slices)
        return rows

    _, found = kept_bits(values, update, indices, 2)
    with tf.device("CPU:0"):
        expected = tf.Variable(values)
        update(expected, tf.constant(indices))
    assert found == expected.numpy().tobytes()


@pytest.mark.parametrize("change", ["scatter_add", "scatter_update"])
def test_an_update_of_a_row_out_of_range_is_an_error(change):
    def update(table, rows):
        slices = tf.IndexedSlices(tf.ones((tf.shape(rows)[0], SIZE), "float64"), rows)
        getattr(table, change)(slices)
        return rows

    with pytest.raises(tf.errors.InvalidArgumentError, match=str(WORDS)):
        kept_bits(np.zeros((WORDS, SIZE)), update, np.array([0, 1, WORDS]), 2)


def train_words(strategy, optimizer, batch=8):
    inputs = keras.Input((3,), dtype="int32")
    table = keras.layers.Embedding(WORDS, SIZE)
    outputs = keras.layers.Dense(2)(table(inputs))
    model = strategy.build(lambda: keras.Model(inputs, outputs))
    model.compile(optimizer, "mse")
    x = np.random.default_rng(0).integers(0, WORDS, (2 * batch, 3))
    model.fit(x, np.zeros((2 * batch, 3, 2)), batch_size=batch, verbose=0)
    return model


@pytest.mark.parametrize(
    "optimizer", ["adam", "sgd", "adamw", "adamax", "nadam", "lion", "ftrl", "muon"]
)
def test_no_replica_has_a_whole_table(optimizer, plans, monkeypatch):
    """No tensor that a replica has whole, and no exchanged tensor, is as large as the table."""
    programs = []
    original = program.Program.__init__

    def made(self, *args, **options):
        original(self, *args, **options)
        programs.append(self)

    monkeypatch.setattr(program.Program, "__init__", made)
    train_words(kdist.MirroredStrategy(replicas=2, shard_weights=True), optimizer)
    for plan in plans:
        plan.step.batch_rows = 8
        wholes = [exchange.tensor for exchange in plan.all_exchanges()]
        for planned in plan.operations:
            results = zip(planned.op.outputs, planned.decision.output_placements, strict=True)
            wholes += [
                tensor
                for tensor, placement in results
                if placement == REPLICATE or isinstance(placement, Partial)
            ]
        sizes = [plan.expected_elements(t) for t in wholes if t.dtype != tf.resource]
        assert None not in sizes
        assert max(sizes) < WORDS
    for stage in (stage for made in programs for stage in made.all_stages()):
        shapes = [out.shape for op in stage.graph.get_operations() for out in op.outputs]
        assert not [shape for shape in shapes if shape.rank and shape[0] == WORDS]


@pytest.mark.parametrize(
    ("batch", "is_in_parts"), [(8, True), (333, True), (334, False), (None, False)]
)
def test_a_table_is_gathered_if_it_is_smaller_than_its_rows(batch, is_in_parts, plans):
    """An own step does not know its number of rows before it runs: the table is gathered."""
    strategy = kdist.MirroredStrategy(replicas=2, shard_weights=True)
    model = train_words(strategy, "sgd", batch or 8)
    if batch is None:
        del plans[:]
        own = tf.function(
            lambda x: strategy.run(model, args=(x,)),
            input_signature=[tf.TensorSpec((None, 3), "int32")],
            autograph=False,
        )
        own(np.zeros((4, 3), "int32"))
    found = [
        planned
        for planned in plans[0].operations
        if Partial(ONE_TERM) in planned.decision.output_placements
    ]
    assert bool(found) == is_in_parts
    assert bool(plans[0].weights) or is_in_parts


def test_explain_counts_the_exchanged_rows():
    strategy = kdist.MirroredStrategy(replicas=2, shard_weights=True)
    model = train_words(strategy, "sgd")
    batch = (np.zeros((8, 3), "int32"), np.zeros((8, 3, 2)))
    few = kdist.explain(model, batch).step
    many = kdist.explain(model, tuple(np.repeat(part, 100, 0) for part in batch)).step
    dense, table = (SIZE * 2 + 2) * 4, WORDS * SIZE * 4
    assert few.weights_gathered == dense
    assert many.weights_gathered == dense + table
    assert few.divided_share == many.divided_share == 1
    assert few.summed >= 8 * 3 * SIZE * 4
    assert "look_up" in {kind for place in few.places for kind in place.types}


def test_results_that_are_weights_are_whole():
    strategy = kdist.MirroredStrategy(replicas=2, shard_weights=True)
    with strategy.scope():
        weights = tf.Variable(tf.ones((64, 64)))
    doubled = tf.function(lambda: strategy.run(lambda: 2.0 * weights))()
    (found,) = strategy.experimental_local_results(doubled)
    np.testing.assert_array_equal(found, np.full((64, 64), 2.0))
