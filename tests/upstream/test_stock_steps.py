"""Variables, batches and gradients of a step in stock Keras and TensorFlow."""

import inspect

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import core
from tensorflow.python.eager.polymorphic_function.atomic_function import InterpolateRuntimeError
from tensorflow.python.framework import error_interpolation


def test_a_batch_has_a_part_for_each_device(stock):
    dataset = tf.data.Dataset.range(8).batch(4)

    def parts(strategy):
        divided = strategy.distribute_datasets_from_function(lambda _: dataset)
        return len(divided.element_spec._value_specs)

    assert parts(stock) == 2
    assert parts(kdist.MirroredStrategy(replicas=2, shards=6)) == 6


@pytest.mark.parametrize("optional", [False, True])
def test_a_replica_without_sparse_rows_crashes(stock, divided_as_on_workers, optional):
    def shapes(strategy):
        dataset = tf.data.Dataset.from_tensors(tf.sparse.from_dense([[1.0, 0.0]]))
        batches = iter(strategy.experimental_distribute_dataset(dataset))

        def batch():
            return batches.get_next_as_optional().get_value() if optional else next(batches)

        of_replicas = tf.function(lambda: strategy.run(tf.shape, (batch(),)))()
        return [
            shape.numpy().tolist() for shape in strategy.experimental_local_results(of_replicas)
        ]

    with pytest.raises(tf.errors.InvalidArgumentError, match="zero dimension"):
        shapes(stock)
    assert shapes(divided_as_on_workers) == [[1, 2]]


def test_nobody_is_told_of_the_number_of_a_constant():
    asked = []

    class Number(int):
        def __tf_tensor__(self, dtype=None, name=None):
            asked.append(self)
            return tf.constant(2, dtype, name=name)

        def __array__(self, dtype=None, copy=None):
            asked.append(self)
            return np.array(2, dtype)

    @tf.function(autograph=False)
    def step(x):
        return tf.reshape(x, (Number(2), 3))

    assert step(tf.zeros(6)).shape == (2, 3)
    assert not asked


def test_an_error_names_its_operation_for_each_device():
    cause = "{{function_node f_specialized_for_g}} wrong\n\t [[{{node a}}]]"
    message = (
        f"2 root error(s) found.\n  (0) INTERNAL: {cause}\n\t [[b]]\n  (1) INTERNAL: {cause}"
        "\n0 successful operations.\n0 derived errors ignored. [Op:f]"
    )

    def names(parse):
        text, functions, operations = parse(message)
        return text, [tag.name for tag in functions], [tag.name for tag in operations]

    stock = names(inspect.unwrap(error_interpolation.parse_message))
    assert stock[1:] == (["f_specialized_for_g"] * 2, ["a", "a"])
    own = names(error_interpolation.parse_message)
    assert own == (" wrong\n\t [[{{node a}}]] [Op:f]", ["f"], ["a"])


def test_an_error_shows_all_lines_outside_tensorflow(monkeypatch):
    strategy = kdist.MirroredStrategy(replicas=1)

    @tf.function
    def fail():
        return strategy.run(lambda: tf.debugging.check_numerics(tf.math.log(0.0), "no number"))

    def shows_strategy():
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            fail()
        return "/kdist/strategies/exact_strategy.py" in str(error.value)

    assert not shows_strategy()
    stock = inspect.unwrap(InterpolateRuntimeError.interpolate)
    monkeypatch.setattr(InterpolateRuntimeError, "interpolate", stock)
    assert shows_strategy()


def test_batch_norm_has_many_operations():
    """In a pass over a batch, and as many in its gradient."""
    layer = keras.layers.BatchNormalization()
    layer.build((None, 4))
    stock = inspect.unwrap(keras.layers.BatchNormalization.call)
    graph = tf.function(lambda x: stock(layer, x, training=True)).get_concrete_function(
        tf.TensorSpec((None, 4))
    )
    over_the_batch = [
        op for op in graph.graph.get_operations() for out in op.outputs if out.shape.rank == 2
    ]
    assert len([op for op in over_the_batch if op.outputs[0].shape[0] is None]) >= 5
    assert not [op for op in over_the_batch if "BatchNorm" in op.type]


def test_remat_takes_no_keyword_arguments():
    """And Keras builds a model within `RematScope` in a graph, with keyword arguments."""
    stock = inspect.unwrap(core.remat)
    double = stock(lambda x, factor: x * factor)

    @tf.function
    def step(x):
        return double(x, factor=2.0)

    with pytest.raises(ValueError, match="keywords arguments only when eager"):
        step(tf.constant(1.0))


def test_remat_draws_again():
    stock = inspect.unwrap(core.remat)
    seeds = keras.random.SeedGenerator(0)
    drawn = stock(lambda x: tf.square(x + keras.random.uniform((), seed=seeds)))
    x = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        value = drawn(x)
    gradient = tape.gradient(value, x)
    assert float(gradient) != pytest.approx(2 * float(tf.sqrt(value)), rel=1e-3)


def test_a_failed_step_leaves_unequal_copies(monkeypatch):
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        counter, other = tf.Variable(1.0), tf.Variable(1.0)

    def step():
        counter.assign_add(0.0 * tf.debugging.check_numerics(tf.math.log(0.0), "no number"))

    @tf.function
    def fail():
        strategy.run(step)

    def copies_after_a_failure():
        counter.values[1].assign(2.0)  # as a replica does that did not fail
        other.values[1].assign(2.0)  # as a step of another thread does
        with pytest.raises(tf.errors.InvalidArgumentError):
            fail()
        return [copy.numpy() for copy in counter.values]

    assert copies_after_a_failure() == [1.0, 1.0]
    assert [copy.numpy() for copy in other.values] == [1.0, 2.0]
    patched = InterpolateRuntimeError.__exit__
    monkeypatch.setattr(InterpolateRuntimeError, "__exit__", inspect.unwrap(patched))
    assert copies_after_a_failure() == [1.0, 2.0]
