"""Sums over replicas, and what TensorFlow does behind them while it traces."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.ops.collectives import all_reduce_sum, differentiable_all_reduce_sum
from tensorflow.python.ops import custom_gradient


def on_replicas(fn, replicas=2):
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=replicas)
    results = tf.function(lambda: strategy.run(fn), autograph=False)()
    return [part.numpy() for part in strategy.experimental_local_results(results)]


def replica():
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, "float32")


def test_every_replica_has_the_sum():
    assert on_replicas(lambda: all_reduce_sum(replica() + 1), replicas=3) == [6, 6, 6]


def test_gradients_flow_through_one_sum_and_not_through_the_other():
    def gradient(total):
        def fn():
            x = replica() + 1
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x * x + total(x) * (replica() + 1)
            return tape.gradient(y, x)

        return fn

    # 2x of the square; of the sum, every replica's factor: 1 + 2.
    assert on_replicas(gradient(all_reduce_sum)) == [2, 4]
    assert on_replicas(gradient(differentiable_all_reduce_sum)) == [2 + 3, 4 + 3]


def walked_operations(depth, monkeypatch):
    """What TensorFlow looks at for variables behind custom gradients, while a step is traced."""
    count = 0
    walk = custom_gradient.op_selector.get_backward_walk_ops

    def counted(*args, **options):
        nonlocal count
        found = walk(*args, **options)
        count += len(found)
        return found

    def make():
        x = inputs = keras.Input((4,))
        for _ in range(depth):
            x = keras.layers.BatchNormalization()(keras.layers.Dense(4, activation="relu")(x))
        return keras.Model(inputs, keras.layers.Dense(1)(x))

    model = kdist.MultiWorkerMirroredStrategy(replicas=2).build(make)
    model.compile("sgd", "mse")
    with monkeypatch.context() as patched:
        patched.setattr(custom_gradient.op_selector, "get_backward_walk_ops", counted)
        model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=8, verbose=0)
    return count


@pytest.mark.usefixtures("without_graph_optimizer")
def test_tracing_grows_no_faster_than_the_depth(monkeypatch):
    """Without `stop_gradient` each batch norm walks through all replicas' graphs: a quadratic."""
    few, many = (walked_operations(depth, monkeypatch) for depth in (2, 10))
    assert 0 < many / 10 <= few / 2
