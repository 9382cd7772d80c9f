"""Bodies of conditions, loops and compiled functions that change variables: equal to one device."""

import contextlib

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import assert_close

ROWS = np.random.default_rng(5).normal(size=(21, 6))
OPTIONS = {"three": {"replicas": 3}, "shards": {"replicas": 2, "shards": 6}}


def counter():
    return tf.Variable(tf.zeros((), tf.float64))


def dropout():
    return keras.layers.Dropout(0.5, seed=4, dtype="float64")


def counts_and_returns_a_sum():
    v = counter()

    def step(x):
        def yes():
            v.assign_add(1.0)
            return tf.reduce_sum(x)

        return tf.cond(v < 2.0, yes, lambda: tf.reduce_sum(x * 3.0))

    return step, [v]


def drops_a_layer():
    layer, v = dropout(), counter()

    def step(x):
        v.assign_add(1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(v % 2.0 > 0.0, lambda: tf.tanh(layer(x, training=True)), lambda: x)
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, x)

    return step, [v, layer.seed_generator.state.value]


def drops_in_a_loop():
    layer, total = dropout(), counter()

    def step(x):
        def body(i, h):
            h = layer(h, training=True) + x
            total.assign_add(tf.reduce_mean(h))
            return i + 1, h

        return tf.while_loop(lambda i, h: i < 3, body, (tf.constant(0), x))[1]

    return step, [total, layer.seed_generator.state.value]


def changes_rows_of_a_table():
    table = tf.Variable(np.arange(12.0).reshape(4, 3))

    def step(x):
        index = tf.cast(x[:, 0] > 0, tf.int32)

        def body(i):
            table.scatter_add(tf.IndexedSlices(x[:, :3], index))
            tf.cond(i > 0, lambda: table[1:2].assign(table[2:3]).op, lambda: tf.no_op())
            return i + 1

        tf.while_loop(lambda i: i < 2, body, (tf.constant(0),))
        return tf.gather(table, index)

    return step, [table]


def draws_from_a_generator():
    generator = tf.random.Generator.from_seed(3, alg="philox")

    def step(x):
        first = generator.normal(tf.shape(x), dtype=x.dtype)
        chosen = tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: x * generator.uniform(tf.shape(x), dtype=x.dtype),
            lambda: x - generator.uniform(tf.shape(x), dtype=x.dtype),
        )
        return first, chosen

    return step, [generator.state]


def is_changed_by_an_operation_without_a_counterpart():
    w = tf.Variable(tf.ones((6,), tf.float64))

    def step(x):
        def yes():
            tf.raw_ops.ResourceApplyGradientDescent(
                var=w.handle, alpha=tf.constant(0.1, w.dtype), delta=tf.reduce_mean(x, 0)
            )
            return x * w

        return tf.cond(tf.reduce_sum(w) > 0, yes, lambda: x)

    return step, [w]


def nests_calls():
    v, w = counter(), tf.Variable(tf.ones((6,), tf.float64))

    @tf.function
    def inner(x):
        w.assign(w * 0.5 + tf.reduce_mean(x, 0))
        return x * w

    def step(x):
        def body(i, h):
            v.assign_add(tf.reduce_sum(h))
            return i + 1, tf.cond(v > 0.0, lambda: inner(h), lambda: h + w)

        return tf.while_loop(lambda i, h: (i < 3) & (v < 100.0), body, (tf.constant(0), x))

    return step, [v, w]


def reads_before_and_after_a_change():
    w, count, moved = tf.Variable(tf.ones((6,), tf.float64)), counter(), counter()

    def step(x):
        def before():
            count.assign_add(1.0)
            return tf.reshape(w, [-1])

        def after():
            moved.assign(tf.reduce_sum((tf.reshape(w, [-1]) - first) ** 2))
            return 0.0

        first = tf.cond(count < 5.0, before, lambda: tf.zeros([0], tf.float64))
        w.assign_sub(tf.reduce_mean(x, 0))
        tf.cond(count < 5.0, after, lambda: 0.0)
        return moved + 0.0

    return step, [w, count, moved]


def changes_in_the_condition_of_a_loop():
    """TensorFlow calls it once more than the body, whose result has the shape that is set."""
    calls = counter()

    def step(x):
        def goes_on(i, h):
            calls.assign_add(1.0)
            return i < 2

        def body(i, h):
            total = tf.numpy_function(np.sum, [h], tf.float64)
            total.set_shape([])
            return i + 1, h * 0.5 + total * calls

        return tf.while_loop(goes_on, body, (tf.constant(0), x))[1]

    return step, [calls]


def keeps_a_batch_of_another_size():
    any_size = tf.TensorShape([None, 6])
    v, w = (tf.Variable(tf.ones((2, 6), tf.float64), shape=any_size) for _ in range(2))

    def step(x):
        def keep():
            v.assign(x)
            return tf.reduce_sum(v)

        def body(i):
            w.assign(x * tf.cast(i, x.dtype))
            return i + 1

        found = tf.cond(tf.reduce_sum(x) > 0, keep, lambda: tf.reduce_sum(v) * 2)
        tf.while_loop(lambda i: i < tf.cast(found > 0, tf.int32), body, (0,))
        return found, tf.reduce_sum(v * 2), tf.reduce_sum(w)

    return step, [v, w]


PROGRAMS = (
    changes_in_the_condition_of_a_loop,
    keeps_a_batch_of_another_size,
    reads_before_and_after_a_change,
    counts_and_returns_a_sum,
    drops_a_layer,
    drops_in_a_loop,
    changes_rows_of_a_table,
    draws_from_a_generator,
    is_changed_by_an_operation_without_a_counterpart,
    nests_calls,
)


def results(program, strategy):
    keras.utils.set_random_seed(3)
    data = tf.data.Dataset.from_tensor_slices(ROWS).batch(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        step, variables = program()
    run = tf.function(step)
    if strategy:
        run = tf.function(lambda x: strategy.gather(strategy.run(step, args=(x,)), 0))
        data = strategy.experimental_distribute_dataset(data)
    made = [[np.asarray(t) for t in tf.nest.flatten(run(x))] for x in data]
    for variable in variables if strategy else ():
        assert len({copy.numpy().tobytes() for copy in variable.values}) == 1
    return [*made, [np.asarray(v) for v in variables]]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_body_changes_variables_as_on_one_device(program):
    expected = results(program, None)
    for options in OPTIONS.values():
        made = results(program, kdist.MirroredStrategy(**options))
        assert_close(made, expected, 1e-9, 1e-9, err_msg=str(options))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_python_functions_and_process_draws_run_once(options):
    strategy, calls = kdist.MirroredStrategy(**options), []
    with strategy.scope():
        drawn = tf.Variable(np.zeros(2))

    def note(rows):
        calls.append(rows.shape)
        return rows[0, 0]

    def noted(x):
        return tf.numpy_function(note, [x], tf.float64)

    def step(x):
        drawn.assign(tf.random.uniform((2,), dtype=tf.float64))
        return noted(x) + tf.cond(tf.reduce_sum(x) < 1e9, lambda: noted(-x), lambda: drawn[0])

    x = tf.constant(ROWS)
    np.testing.assert_allclose(tf.function(lambda: strategy.run(step, args=(x,)))(), 0, atol=1e-12)
    assert calls == [ROWS.shape] * 2
    assert len({copy.numpy().tobytes() for copy in drawn.values}) == 1


def test_a_device_changes_its_variables_after_all_of_its_shards():
    strategy = kdist.MirroredStrategy(replicas=2, shards=6)
    with strategy.scope():
        count = counter()

    def step(x):
        made = x * count
        count.assign_add(1.0)
        return made

    run = tf.function(lambda: strategy.run(step, args=(tf.constant(ROWS),)))
    calls = [op for op in run.get_concrete_function().graph.get_operations() if "stage" in op.name]
    writers = [call for call in calls if "writes" in call.name]
    assert len(writers) == 2
    for writer in writers:
        readers = {call for call in calls if call.device == writer.device} - {writer}
        assert len(readers & set(writer.control_inputs)) == 3


def meets_in_a_branch(x, y):
    same = tf.equal(tf.shape(x)[0], tf.shape(y)[0])
    mixed = tf.cond(same, lambda: 0.8 * x + 0.2 * y, lambda: x)
    return mixed, tf.reduce_mean(y)


def meets_in_a_loop(x, y):
    count = tf.cast(tf.equal(tf.shape(x)[0], tf.shape(y)[0]), tf.int32)
    return tf.while_loop(lambda i, h: i < count, lambda i, h: (i + 1, h * y), (0, x))[1]


def is_one_batch_or_the_other(x, y):
    is_first = tf.reduce_sum(x) > tf.reduce_sum(y)
    chosen = tf.cond(is_first, lambda: 2.0 * x, lambda: tf.cond(is_first, lambda: x, lambda: y))
    columns = tf.cond(is_first, lambda: tf.transpose(x), lambda: tf.transpose(y))
    return chosen, tf.transpose(columns), tf.reduce_mean(chosen, 0), tf.concat([x, chosen], 0)


@pytest.mark.parametrize("step", [meets_in_a_branch, meets_in_a_loop, is_one_batch_or_the_other])
def test_batches_that_meet_in_a_branch_need_equal_sizes_there_only(step):
    data = tf.data.Dataset.zip(
        tf.data.Dataset.from_tensor_slices(ROWS[:12]).batch(8),
        tf.data.Dataset.from_tensor_slices(ROWS[5:]).batch(8),
    )
    expected = [tf.nest.flatten(step(*batch)) for batch in data]
    strategy = kdist.MirroredStrategy(replicas=2)
    data = strategy.experimental_distribute_dataset(data)

    def run(*batch):
        return strategy.gather(strategy.run(step, args=batch), 0)

    run = tf.function(run, input_signature=data.element_spec)
    for one, batch in zip(expected, data, strict=True):
        assert_close(tf.nest.flatten(run(*batch)), one, 1e-12)
