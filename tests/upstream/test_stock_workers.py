"""Several workers in stock Keras and TensorFlow."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist._upstream.row_counts import attached_counts
from kdist._upstream.seeds import seed_state, set_seed_state
from keras.src.backend.tensorflow import trainer
from stock_models import linear
from tensorflow.python.distribute import collective_util, cross_device_utils
from tensorflow.python.ops import collective_ops


def test_logs_are_averaged_over_an_axis_that_they_lack(monkeypatch, stock):
    """keras#20585: `fit` and `evaluate` crash."""
    monkeypatch.setattr(trainer, "_collective_all_reduce_multi_worker", lambda strategy: True)
    with pytest.raises(ValueError, match="dimension 0"):
        trainer.reduce_per_replica(tf.constant(1.0), stock, "auto")


def test_collectives_take_their_keys_when_the_step_is_called():
    """A loop fails, as of several steps per execution."""
    launcher = _launcher(901)

    @tf.function(autograph=False)
    def step(x):
        return launcher.all_reduce(x)

    @tf.function(autograph=False)
    def loop():
        def body(i, x):
            return i + 1, tf.cond(i < 5, lambda: step(x), lambda: x)

        return tf.while_loop(lambda i, x: i < 2, body, (0, tf.ones((1,))))

    with pytest.raises(tf.errors.InvalidArgumentError, match="Placeholder"):
        loop()


def test_a_small_sum_is_an_all_reduce_in_order():
    """TensorFlow gathers no bfloat16."""
    launcher = _launcher(902)

    @tf.function(autograph=False)
    def step(x):
        return launcher.all_reduce(x) + launcher.all_reduce(tf.ones([10_000]))[:2]

    nodes = step.get_concrete_function(tf.ones([2])).graph.get_operations()
    small, large = (op for op in nodes if op.type.startswith("Collective"))
    assert small.type == large.type == "CollectiveReduceV2"
    assert large.control_inputs == [small]
    assert small.inputs[-1].dtype == large.inputs[-1].dtype == tf.resource
    with pytest.raises(tf.errors.InvalidArgumentError, match="bfloat16"):
        collective_ops.all_gather_v2(tf.ones([2], tf.bfloat16), 1, 1, 1)


def test_an_iterator_asks_for_data_but_not_for_rows(stock, monkeypatch):
    asked = []
    dataset = stock.experimental_distribute_dataset(tf.data.Dataset.range(3).batch(3))
    monkeypatch.setattr(stock.extended, "_in_multi_worker_mode", lambda: True)
    monkeypatch.setattr(stock, "reduce", lambda op, value, axis: asked.append(value) or value)
    batch = next(iter(dataset))
    assert [value.numpy().tolist() for value in asked] == [[[2]]]
    assert attached_counts(batch) is None


def _launcher(group):
    keys, device = cross_device_utils.CollectiveKeys(group), "/device:CPU:0"
    return cross_device_utils.CollectiveReplicaLauncher(
        keys.get_group_key([device]), 1, keys, device, collective_util.Options()
    )


def test_batches_of_workers_are_not_compared():
    """A strategy is asked to divide the data, and for nothing else."""
    asked = []

    class Recording:
        def __getattr__(self, name):
            asked.append(name)
            return lambda dataset: dataset

    trainer.TFEpochIterator(x=np.ones((2, 1)), distribute_strategy=Recording())
    assert asked == ["experimental_distribute_dataset"]


def test_every_worker_runs_every_callback(stock, monkeypatch, tmp_path):
    """TensorFlow says that only the chief should write."""
    model = linear(stock)
    monkeypatch.setattr(type(stock.extended), "should_checkpoint", False)
    writing = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    callbacks = keras.callbacks.CallbackList([writing], add_progbar=True, model=model)
    kinds = [type(one).__name__ for one in callbacks.callbacks]
    assert kinds == ["CSVLogger", "ProgbarLogger"]


def test_a_model_is_written_into_the_file_that_is_there(stock, tmp_path):
    """So of two workers that save at once, each destroys the other's file."""
    model = linear(stock)
    for name, save in (
        ("a.keras", model.save),
        ("a.weights.h5", model.save_weights),
        ("a.h5", model.save),
    ):
        files = []
        for _ in range(2):
            save(tmp_path / name)
            files.append((tmp_path / name).stat().st_ino)
        assert files[0] == files[1]


def test_an_eager_draw_changes_the_order_of_what_is_shuffled_after_it():
    """So workers of one seed have other batches if one of them has drawn a number before."""
    orders = []
    for draws in (0, 0, 1):
        keras.utils.set_random_seed(3)
        for _ in range(draws):
            tf.random.uniform(())
        state = seed_state()
        orders.append(list(tf.data.Dataset.range(64).shuffle(64).as_numpy_iterator()))
    assert orders[0] == orders[1] != orders[2]
    keras.utils.set_random_seed(4)
    set_seed_state(json.loads(json.dumps(state)))
    assert list(tf.data.Dataset.range(64).shuffle(64).as_numpy_iterator()) == orders[2]
