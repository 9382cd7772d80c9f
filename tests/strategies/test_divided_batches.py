"""Batches that are divided over replicas, beside those of TensorFlow's own strategy."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist._upstream.device_iterators import share_functions
from replicas import stock_mirrored
from tensorflow.python.framework import func_graph

REPLICAS = 4


@pytest.fixture(scope="module")
def stock():
    return stock_mirrored(REPLICAS)


@pytest.fixture(scope="module")
def strategy():
    return kdist.MirroredStrategy(replicas=REPLICAS)


@pytest.fixture(params=["read whole", "read ahead"])
def divide(request, stock, strategy):
    """Both ways in which kdist divides a data set: on CPUs, and on GPUs and workers."""
    if request.param == "read whole":
        return strategy.experimental_distribute_dataset
    return lambda data: share_functions(stock.experimental_distribute_dataset(data))


@pytest.fixture
def traced(monkeypatch):
    """The names of the functions that are traced."""
    names, original = [], func_graph.func_graph_from_py_func

    def trace(name, *args, **options):
        names.append(name)
        return original(name, *args, **options)

    monkeypatch.setattr(func_graph, "func_graph_from_py_func", trace)
    return names


def rows_of(batches):
    """The rows of each replica, of all batches."""
    return [
        [[part.numpy().tolist() for part in parts.values] for parts in keras.tree.flatten(batch)]
        for batch in batches
    ]


def numbers(rows):
    return tf.data.Dataset.range(rows)


DATA = {
    "even": lambda: numbers(16).batch(8),
    "uneven": lambda: numbers(19).batch(10),
    "fewer rows than replicas": lambda: numbers(11).batch(9),
    "known number of rows": lambda: numbers(20).batch(10, drop_remainder=True),
    "batches of several sizes": lambda: numbers(3).batch(3).concatenate(numbers(9).batch(9)),
    "repeated": lambda: numbers(6).batch(4).repeat(2),
    "pairs": lambda: numbers(6).map(lambda x: (x, [x, x])).batch(4),
    "dict": lambda: numbers(6).map(lambda x: {"a": x, "b": x + 1}).batch(4),
    "texts": lambda: numbers(6).map(tf.strings.as_string).batch(4),
    "parts with other numbers of rows": lambda: tf.data.Dataset.zip(
        numbers(8).batch(4), numbers(20).batch(10)
    ),
    "none": lambda: numbers(0).batch(4),
}


@pytest.mark.parametrize("kind", DATA)
def test_replicas_get_the_rows_that_tensorflow_gives_them(stock, divide, kind):
    data = DATA[kind]()
    expected = rows_of(stock.experimental_distribute_dataset(data))
    divided = divide(data)
    assert int(divided.cardinality) == len(expected)
    for _ in range(2):
        assert rows_of(divided) == expected


@tf.function
def added(batches):
    """The sum of all rows of the batches' first parts."""
    total = tf.constant(0, tf.int64)
    for batch in batches:
        total += tf.add_n([tf.reduce_sum(part) for part in keras.tree.flatten(batch)[0].values])
    return total


@pytest.mark.parametrize("kind", ["uneven", "known number of rows", "pairs"])
def test_a_function_reads_all_batches_of_an_iterator(divide, kind):
    divided = divide(DATA[kind]())
    expected = sum(np.concatenate(batch[0]).sum() for batch in rows_of(divided))
    assert added(iter(divided)).numpy() == expected


def test_a_function_makes_the_iterator_of_its_data(strategy):
    data = strategy.experimental_distribute_dataset(numbers(12).batch(8))
    assert added(data).numpy() == sum(range(12))
    first = tf.function(lambda data: next(iter(data)).values[0])
    assert first(data).numpy().tolist() == [0, 1]


def test_epochs_trace_nothing(divide, traced):
    first, *others = (divide(numbers(rows).batch(size)) for rows, size in ((12, 4), (7, 6)))
    rows_of(first)
    traced.clear()
    for data in (first, *others):
        rows_of(data)
    assert traced == []


def test_a_function_of_an_iterator_is_traced_once_for_all_batch_sizes(strategy):
    read = tf.function(lambda batches: next(batches).values[0])
    for size in (4, 6):
        batches = iter(strategy.experimental_distribute_dataset(numbers(12).batch(size)))
        assert read(batches).numpy().tolist() == [*range(-(-size // REPLICAS))]
    assert read.experimental_get_tracing_count() == 1


def test_specs_are_those_of_the_batches(strategy):
    data = numbers(20).map(lambda x: {"a": x, "b": [x, x]}).batch(10, drop_remainder=True)
    divided = strategy.experimental_distribute_dataset(data)
    batch = next(iter(divided))
    assert divided.element_spec == iter(divided).element_spec
    assert divided.element_spec == {name: rows._type_spec for name, rows in batch.items()}


def test_sparse_and_ragged_tensors_and_those_of_any_rank_stay_whole(strategy):
    sparse, ragged = tf.sparse.from_dense([[0.0, 1.0]] * 3), tf.ragged.constant([[1], [2, 3], []])
    data = tf.data.Dataset.from_tensors((sparse, ragged, tf.range(3)))
    of_any_rank = tf.data.Dataset.from_generator(lambda: [np.ones((3, 2))], tf.float64)
    divided = strategy.experimental_distribute_dataset(tf.data.Dataset.zip(data, of_any_rank))
    ((found_sparse, found_ragged, rows), found) = next(iter(divided))
    np.testing.assert_array_equal(tf.sparse.to_dense(found_sparse), tf.sparse.to_dense(sparse))
    assert found_ragged.to_list() == ragged.to_list()
    assert found.shape == (3, 2)
    assert [len(part) for part in rows.values] == [1, 1, 1, 0]


def test_each_replica_of_a_model_that_is_fit_on_divided_data_gets_its_rows(strategy):
    model = strategy.build(lambda: keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.01), "mse", steps_per_execution=2)
    x = np.arange(7.0)[:, None]
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(3)
    before = model.get_weights()
    history = model.fit(
        strategy.experimental_distribute_dataset(data), epochs=2, shuffle=False, verbose=0
    )
    losses = history.history["loss"]
    model.set_weights(before)
    model.optimizer.iterations.assign(0)
    np.testing.assert_allclose(
        model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"], losses
    )


def test_an_option_that_tensorflow_refuses_is_refused(strategy):
    per_replica = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    with pytest.raises(NotImplementedError, match="PER_REPLICA"):
        strategy.experimental_distribute_dataset(numbers(4).batch(4), per_replica)


@pytest.mark.parametrize("buffer", [0, 1, 3])
@pytest.mark.parametrize("slack", [False, True])
def test_options_of_reading_ahead_are_kept(stock, buffer, slack):
    of_data = tf.data.Options()
    of_data.experimental_slack = slack
    options = tf.distribute.InputOptions(experimental_per_replica_buffer_size=buffer)
    data = numbers(10).batch(4).with_options(of_data)
    divided = stock.experimental_distribute_dataset(data, options)
    expected = rows_of(divided)
    assert rows_of(share_functions(divided)) == expected


def test_gpus_read_ahead(strategy, monkeypatch):
    """On logical CPUs, which are said to be GPUs."""
    data = numbers(8).map(lambda x: (tf.cast([x], tf.float32), [1.0])).batch(3)

    def trained():
        model = strategy.build(
            lambda: keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
        )
        model.set_weights([np.ones((1, 1))])
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
        model.fit(data, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()[0]

    expected = trained()
    monkeypatch.setattr(type(strategy), "on_gpus", property(lambda self: True))
    divided = strategy.experimental_distribute_dataset(data)
    assert isinstance(divided, tf.distribute.DistributedDataset)
    assert isinstance(next(iter(divided))[0], tf.distribute.DistributedValues)
    assert type(divided).__name__ == "PrefetchedDataset"
    np.testing.assert_allclose(trained(), expected, rtol=1e-6)
