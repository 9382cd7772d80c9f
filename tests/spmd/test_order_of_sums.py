"""Sums add their summands in one order on every replica, also after TensorFlow's optimizer."""

import kdist
import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd.collectives import ExchangedRows
from replicas import assert_equal
from tensorflow.python.eager import context


def _optimized_sums(fn, *args):
    """Run a function; return how many summands each `AddN` of real numbers has in its graphs."""
    context.context().enable_run_metadata()
    try:
        fn(*args)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_run_metadata()
    nodes = [node for graph in graphs for part in graph.partition_graphs for node in part.node]
    assert any(node.op in ("AddV2", "AddN") for node in nodes)
    return [
        node.attr["N"].i
        for node in nodes
        if node.op == "AddN" and tf.as_dtype(node.attr["T"].type).is_floating
    ]


def _chain(x):
    return tf.sin(x) + tf.cos(x) + tf.tanh(x) + tf.exp(x)


def _add_n(x):
    return tf.add_n([tf.sin(x), tf.cos(x), tf.tanh(x)])


def _gradients(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.sin(x) * tf.cos(x) * tf.tanh(x) * tf.exp(x))
    return tape.gradient(loss, x)


@pytest.mark.parametrize("fn", [_chain, _add_n, _gradients])
def test_no_replica_adds_three_terms_in_an_order_of_its_own(fn):
    x = tf.reshape(tf.range(24.0), [8, 3])
    strategy = kdist.MirroredStrategy(replicas=2)
    stock = tf.function(fn, autograph=False)
    divided = tf.function(lambda rows: strategy.run(fn, args=(rows,)), autograph=False)
    assert max(_optimized_sums(stock, x)) > 2  # TensorFlow's own sums
    assert max(_optimized_sums(divided, x), default=0) <= 2


def test_each_shard_gets_its_rows_of_the_sum_in_the_fixed_order():
    """One machine adds as several workers do: no shard adds the other shards' parts alone."""
    shards = np.random.default_rng(0).normal(size=(4, 9, 3)).astype("float32")
    expected = (shards[0] + shards[2]) + (shards[1] + shards[3])
    assert not np.array_equal(expected, shards[0] + shards[1] + shards[2] + shards[3])
    for replicas in (1, 2, 4):
        strategy = kdist.MirroredStrategy(replicas=replicas, shards=4)
        parts = [tf.constant(shard) for shard in shards]
        rows = ExchangedRows(parts, shape=(9, 3), axis=0, sizes=[3, 2, 2, 2])
        (scattered,) = strategy.collectives().scatter_sums([rows])
        assert_equal(scattered, np.split(expected, [3, 5, 7]))
        (summed,) = strategy.collectives().sum_all([parts])
        assert_equal(summed, [expected] * 4)
