"""Variables of which every replica has a copy: in a step, outside of it, and as plain ones are."""

import contextlib

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from replicas import assert_equal, stock_mirrored

TABLE = np.arange(12.0).reshape(4, 3)


def changed_elements(v):
    v.scatter_nd_update([[0, 1]], [10.0])
    v.scatter_nd_add([[1, 1]], [10.0])
    v.scatter_nd_sub([[3, 0], [3, 0]], [1.0, 2.0])
    v.scatter_nd_min([[3, 1]], [5.0])
    v.scatter_nd_max([[3, 2]], [50.0])
    v.batch_scatter_update(
        tf.IndexedSlices(tf.constant([[7.0], [8.0], [9.0], [9.5]], v.dtype), [[2]] * 4)
    )
    v[2:3].assign(v[0:1] * 2.0)
    return v.sparse_read([0, 1]), v.gather_nd([[0, 1], [1, 2]]), v + 0.0


@pytest.fixture(scope="module")
def strategy():
    return kdist.MirroredStrategy(replicas=2)


@pytest.mark.parametrize("where", ["step", "eager", "function"])
def test_elements_are_changed_in_all_copies(strategy, where):
    with strategy.scope():
        v = tf.Variable(TABLE)
    if where == "step":
        made = tf.function(lambda: strategy.run(changed_elements, args=(v,)))()
    elif where == "eager":
        made = changed_elements(v)
    else:
        made = tf.function(changed_elements)(v)
    expected = changed_elements(plain := tf.Variable(TABLE))
    assert_equal(made, expected)
    for copy in v.values:
        np.testing.assert_array_equal(copy, plain)


@pytest.mark.parametrize("in_scope", [False, True])
def test_values_are_assigned_to_all_copies_without_a_call_of_update(
    strategy, in_scope, monkeypatch
):
    with strategy.scope():
        v, other = tf.Variable([1.0, 2.0]), tf.Variable([5.0, 5.0])
    updated, original = [], type(strategy.extended).update
    monkeypatch.setattr(
        type(strategy.extended),
        "update",
        lambda *args, **kw: updated.append(args) or original(*args, **kw),
    )
    with strategy.scope() if in_scope else contextlib.nullcontext():
        assert v.assign([1, 2]) is v.assign_add([1.0, 1.0]) is v.assign_sub(np.ones(2)) is v
        with pytest.raises(ValueError, match="shape"):
            v.assign([1.0])
        with pytest.raises(ValueError, match="int32"):
            v.assign(tf.constant([1, 2], tf.int32))
    assert not updated
    assert [copy.numpy().tolist() for copy in v.values] == [[1.0, 2.0]] * 2
    v.assign(other)
    assert [copy.numpy().tolist() for copy in v.values] == [[5.0, 5.0]] * 2


@pytest.mark.parametrize("shard_optimizer", [False, True])
@pytest.mark.parametrize("where", ["step", "eager", "function"])
def test_an_assignment_may_have_a_name(where, shard_optimizer):
    strategy = kdist.MirroredStrategy(replicas=2, shard_optimizer=shard_optimizer)
    with strategy.scope():
        v, other = tf.Variable([1.0, 2.0]), tf.Variable([5.0, 6.0])

    def change():
        v.assign(0.5 * v + other, name="average")
        v.assign_add([1.0, 1.0], name="sum")

    calls = {"step": lambda: strategy.run(change), "eager": change, "function": change}
    call = calls[where]
    (call if where == "eager" else tf.function(call, autograph=False))()
    assert [copy.numpy().tolist() for copy in v.values] == [[6.5, 8.0]] * 2


def test_an_update_of_one_copy_changes_that_copy_of_others(strategy):
    with strategy.scope():
        v, other = tf.Variable(1.0), tf.Variable(0.0)
        strategy.extended.update(v, lambda copy: other.assign_add(copy), group=False)
    assert [copy.numpy() for copy in other.values] == [1.0, 1.0]


def test_an_assignment_in_another_strategys_scope_is_refused(strategy):
    with strategy.scope():
        v = tf.Variable(1.0)
    with kdist.MirroredStrategy(replicas=2).scope(), pytest.raises(RuntimeError, match="Mixing"):
        v.assign(2.0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggregation": tf.VariableAggregation.MEAN},
        {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
        },
    ],
)
def test_attributes_say_what_was_asked(strategy, options):
    found = []
    for scope in (strategy, stock_mirrored()):
        with scope.scope():
            v = tf.Variable(2.0, **options)
        found.append((v.trainable, v.synchronization, v.aggregation))
    assert found[0] == found[1]


def test_a_number_is_a_number(strategy):
    with strategy.scope():
        v = tf.Variable(3, dtype=tf.int64)
    assert (int(v), float(v), bool(v)) == (3, 3.0, True)


@pytest.mark.parametrize("in_scope", [False, True])
def test_a_step_outside_of_the_strategy_says_to_call_run(strategy, in_scope):
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        if in_scope:
            optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    with pytest.raises(UserError, match=r"call strategy\.run\(step"):
        if in_scope:
            with strategy.scope():
                step(tf.ones((2, 3)))
        else:
            step(tf.ones((2, 3)))
