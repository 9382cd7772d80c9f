"""With a fixed number of shards, all results have the same bits on any number of devices."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
import trained_bits
from kdist.errors import UserError
from replicas import assert_close, assert_equal, divide, fit

PROGRAM = Path(trained_bits.__file__)


def test_a_model_has_the_same_bits_on_one_two_and_four_devices():
    """Other models: `test_workers_have_the_same_bits_as_one_device`."""
    found = {
        replicas: trained_bits.digest(kdist.MirroredStrategy(replicas=replicas, shards=4), "lstm")
        for replicas in (1, 2, 4)
    }
    assert len(set(found.values())) == 1, found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "option", ["shard_weights", pytest.param("shard_optimizer", marks=pytest.mark.slow)]
)
def test_divided_variables_have_the_same_bits_on_one_two_and_four_devices(option):
    found = {}
    for replicas in (1, 2, 4):
        strategy = kdist.MirroredStrategy(replicas=replicas, shards=4, **{option: True})
        found[replicas] = trained_bits.digest(strategy, "words")
    assert len(set(found.values())) == 1, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "models", [[*trained_bits.MODELS], [*trained_bits.DIVIDED]], ids=["whole", "divided"]
)
def test_workers_have_the_same_bits_as_one_device(models):
    """In processes of their own, where TensorFlow takes as many threads as it likes."""
    commands = {"one device": [], "2 x 1": ["launch", "--workers", "2"]}
    commands["2 x 2"] = commands["2 x 1"]
    found = {}
    for kind, launch in commands.items():
        start = ["-m", "kdist", *launch] if launch else []
        replicas = "2" if kind == "2 x 2" else "1"
        rest = [str(PROGRAM), replicas, *models, *(["--workers"] if launch else [])]
        rest += ["--divided"] if models == [*trained_bits.DIVIDED] else []
        done = subprocess.run(
            [sys.executable, *start, *rest], capture_output=True, text=True, timeout=900
        )
        assert not done.returncode, done.stderr[-3000:]
        found[kind] = re.findall(r"digest of (\w+): (\w+)", done.stdout)
        assert [name for name, _ in found[kind]] == models
    assert found["one device"] == found["2 x 1"] == found["2 x 2"]


class Counting(keras.layers.Layer):
    """Reads a variable before and after it changes it, as a step of several stages does."""

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        before = self.count + 1.0
        self.count.assign_add(keras.ops.mean(x))
        middle = self.count * 2.0
        self.count.assign(self.count + keras.ops.max(x))
        return x * before + middle - self.count


@pytest.mark.usefixtures("float64")
def test_reads_of_a_variable_see_writes_before_them():
    """Shards that share a device change its variables once."""
    x = np.random.default_rng(0).normal(size=(11, 3))

    def make():
        return keras.Sequential([keras.Input((3,)), Counting(), keras.layers.Dense(2), Counting()])

    def adam():
        return keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2)

    results = [
        fit(strategy, make, x, x[:, :2], optimizer=adam, epochs=2).get_weights()
        for strategy in (None, *(kdist.MirroredStrategy(replicas=n, shards=6) for n in (1, 2, 3)))
    ]
    for weights in results[1:]:
        assert_close(weights, results[0], rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings(
    "ignore:To make it possible to preserve tf.data options"
)  # TensorFlow's
def test_a_step_of_ones_own_sees_all_rows():
    strategy = kdist.MirroredStrategy(replicas=2, shards=4)
    with strategy.scope():
        total = tf.Variable(0.0)

    def add(rows):
        total.assign_add(tf.reduce_sum(rows))
        tf.print("once", output_stream=sys.stderr)
        return tf.shape(rows)[0], rows * total

    step = tf.function(lambda batch: strategy.run(add, (batch,)))

    @tf.function
    def epoch(batches):  # a dataset, which TensorFlow makes anew inside of it
        for batch in batches:
            strategy.run(add, (batch,))

    rows = tf.data.Dataset.from_tensor_slices(tf.range(9.0)).batch(9)
    epoch(strategy.experimental_distribute_dataset(rows))
    assert total.numpy() == 36.0
    total.assign(0.0)
    (batch,) = strategy.experimental_distribute_dataset(rows)
    assert [len(part) for part in strategy.experimental_local_results(batch)] == [3, 3, 3, 0]
    count, scaled = step(batch)
    assert (int(count), total.numpy()) == (9, 36.0)
    np.testing.assert_array_equal(strategy.gather(scaled, 0), np.arange(9) * 36.0)


def test_python_functions_run_in_order_with_reads_of_shards():
    strategy, alone, seen = kdist.MirroredStrategy(replicas=2, shards=4), tf.Variable(0.0), []
    with strategy.scope():
        copied = tf.Variable(0.0)

    def add(rows):
        alone.assign_add(tf.reduce_sum(rows))
        copied.assign_add(alone)
        (noted,) = tf.py_function(lambda v: seen.append(float(v)) or [v], [copied], [tf.float32])
        alone.assign_add(1.0)
        return alone + copied + tf.ensure_shape(noted, [])

    step = tf.function(lambda batch: strategy.run(add, (batch,)))
    rows = tf.data.Dataset.from_tensor_slices(tf.range(9.0)).batch(3)
    results = [float(step(one)) for one in strategy.experimental_distribute_dataset(rows)]
    assert (results, seen) == ([10.0, 55.0, 153.0], [3.0, 19.0, 57.0])
    assert [copy.numpy() for copy in copied.values] == [57.0, 57.0]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_generator_of_tensorflow_draws_once_for_all_shards(replicas):
    def drawn(strategy):
        with strategy.scope() if strategy else contextlib.nullcontext():
            generator = tf.random.Generator.from_seed(3)

        def step(x):
            noise = generator.normal(tf.shape(x), dtype=x.dtype)
            return x + noise + tf.cast(generator.uniform([3], 0, 9, tf.int32), x.dtype)

        if strategy is None:
            return [step(tf.constant(rows)) for _ in range(2)]
        run = tf.function(lambda batch: strategy.gather(strategy.run(step, (batch,)), 0))
        batch = divide(strategy, rows)
        return [run(batch) for _ in range(2)]

    rows = np.arange(21.0).reshape(7, 3)
    strategy = kdist.MirroredStrategy(replicas=replicas, shards=4)
    assert_equal(drawn(strategy), drawn(None))


@pytest.mark.parametrize("shards", [0, 3, -2])
def test_shards_have_to_be_a_multiple(shards):
    with pytest.raises(UserError, match=f"shards={shards} for 2 replicas, .* a multiple of 2"):
        kdist.MirroredStrategy(replicas=2, shards=shards)


def test_shards_are_added_up_in_their_own_order():
    with pytest.raises(UserError, match="shards=2 and cross_device_ops"):
        kdist.MirroredStrategy(replicas=2, shards=2, cross_device_ops=tf.distribute.NcclAllReduce())
