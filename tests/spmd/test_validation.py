"""With `KDIST_VERIFY=1`, a plan that is wrong is found, and the operation and line are named."""

import dataclasses

import kdist
import numpy as np
import pytest
import tensorflow as tf
from kdist.spmd.operation import LOCAL, RULES, Decision
from kdist.spmd.placements import PARTIAL, REPLICATE
from kdist.spmd.validation import validate_steps

ROWS = np.random.default_rng(0).normal(size=(7, 3))


def run(step, rows=ROWS):
    strategy = kdist.MirroredStrategy(replicas=2)
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(rows))
    with validate_steps():
        return [tf.function(lambda x: strategy.run(step, args=(x,)))(x) for x in data]


def wrong_rows(op):
    return Decision([LOCAL, REPLICATE], [op.placements[0].as_plain()])


def wrong_sum(op):
    return Decision([LOCAL] * len(op.inputs), [PARTIAL])


def wrong_copy(op):
    return Decision([LOCAL] * len(op.inputs), [REPLICATE])


def said_to_be_equal(op):
    shard = dataclasses.replace(op.placements[0], uniform=True)
    return Decision([LOCAL] * len(op.inputs), [shard])


def with_another_size(op):
    def emit(stage, op, inputs):
        return [tf.concat([inputs[0], inputs[0]], 0)]

    return Decision([LOCAL], [op.placements[0]], emit)


def with_another_inner_size(op):
    return Decision([LOCAL], [op.placements[0]], lambda stage, op, inputs: [inputs[0][:, :-1]])


@pytest.mark.parametrize(
    ("kind", "rule", "step", "says"),
    [
        ("Cumsum", wrong_rows, lambda x: tf.cumsum(x, 0), "not"),
        ("Max", wrong_sum, lambda x: tf.reduce_max(x), "not"),
        ("Sum", wrong_copy, lambda x: tf.reduce_sum(x), "values differ"),
        ("Tanh", said_to_be_equal, lambda x: tf.tanh(x), "plan says that all rows are equal"),
        ("Relu", with_another_size, lambda x: tf.nn.relu(x), "rows, not"),
        ("Sinh", with_another_inner_size, lambda x: tf.sinh(x), "has the shape"),
    ],
)
def test_a_wrong_rule_is_found(kind, rule, step, says, monkeypatch):
    monkeypatch.setitem(RULES, kind, rule)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as raised:
        run(lambda x: step(x * 2.0))
    found = next(line for line in str(raised.value).splitlines() if "kdist has divided" in line)
    assert f"{kind} of " in found
    assert "test_validation.py" in found
    assert says in found


def test_a_variable_that_is_read_too_early_is_found(monkeypatch):
    """The value after the step is that of the assignments in their order, as one device has it."""
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        variable = tf.Variable(1.0, dtype=tf.float64)

    def step(x):
        variable.assign(tf.reduce_sum(x))
        variable.assign_add(1.0)
        return variable * 2.0

    def run():
        with validate_steps():
            return tf.function(
                lambda: strategy.run(step, args=(tf.constant([1.0, 2.0], "float64"),))
            )()

    assert run() == 8.0
    monkeypatch.setitem(RULES, "AssignAddVariableOp", twice)
    with pytest.raises(tf.errors.InvalidArgumentError, match="kdist has divided ReadVariableOp"):
        run()


def test_functions_may_have_the_same_names_as_those_that_validate_them():
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        variable = tf.Variable(np.ones(3))

    @tf.function(jit_compile=True, autograph=False)
    def changed(x):
        variable.assign(variable * 0.5 + tf.reduce_mean(x, 0))
        return x * variable

    @tf.function(jit_compile=True, autograph=False)
    def doubled(x):
        return x * 2.0

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = changed(x) ** 2 + doubled(x)
        return tape.gradient(made, x)

    x = tf.constant(ROWS)
    with validate_steps():
        made = tf.function(lambda: strategy.gather(strategy.run(step, args=(x,)), 0))()
    np.testing.assert_allclose(made, 2 * ROWS * (0.5 + np.mean(ROWS, 0)) ** 2 + 2)


def test_a_variable_that_is_changed_in_an_unknown_way_is_trusted():
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        variable, momentum = (tf.Variable(np.ones(3)) for _ in range(2))
    rate = tf.constant(0.5, tf.float64)

    def step(x):
        for _ in range(2):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=momentum.handle,
                lr=rate,
                grad=tf.reduce_sum(x, 0),
                momentum=rate,
            )
            made = x * variable
        return made

    x = tf.constant(ROWS)
    expected = x * (
        1 - 0.5 * (0.5 + tf.reduce_sum(x, 0)) - 0.5 * (0.25 + 1.5 * tf.reduce_sum(x, 0))
    )
    with validate_steps():
        made = tf.function(lambda: strategy.gather(strategy.run(step, args=(x,)), 0))()
    np.testing.assert_allclose(made, expected)


def twice(op):
    def emit(stage, op, inputs):
        handle, value = inputs
        return stage.copy_operation(op, [handle, 2.0 * value])

    return Decision([LOCAL, REPLICATE], [], emit)


def test_a_sum_of_values_that_cancel_passes():
    """In another order it is not 0, and rounding errors of its values may cancel, too."""
    for rows in ([-0.9, 0.6, -0.3, 0.6], [-0.3, 0.8, -0.6, -0.5, 0.6]):
        run(lambda x: tf.reduce_sum(x), rows=np.array(rows))
    # The replicas' parts are large, and the sums of them are rounding errors.
    large = np.outer([1, -1 - 1e-15], [0.1, 0.7, 0.3, 1.1])
    run(lambda x: tf.add_n([tf.reduce_sum(c) for c in tf.unstack(x, axis=1)]), rows=large)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_of_different_ranks_pass(sign):
    """TensorFlow says of a condition with a gradient that its results have the first branch's."""

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = tf.cond(
                tf.reduce_sum(x) > 0, lambda: tf.sort(x[:, 0])[:2], lambda: tf.sort(x[:, 0])[0]
            )
            loss = tf.reduce_sum(tf.sin(made))
        return loss, tape.gradient(loss, x)

    run(step, rows=sign * np.abs(ROWS))


def test_vectors_that_are_not_computed_pass():
    def step(x):
        squares = x[:, :, None] * x[:, None]
        return tf.linalg.svd(squares, compute_uv=False), tf.linalg.eigvalsh(squares)

    run(step)


def test_casts_of_numbers_that_the_type_lacks_pass():
    """Their results depend on the number of elements."""
    run(lambda x: tf.cast(x, tf.uint8), rows=np.random.default_rng(0).normal(size=(16, 1)) * 300)


def test_rounding_errors_that_grow_in_a_loop_pass():
    """The lists of a loop, and of its gradient, are compared once their elements are taken."""
    rng = np.random.default_rng(1)
    matrix = tf.constant(rng.normal(size=(12, 12)))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = tf.scan(lambda h, _: tf.sin(h @ matrix), tf.range(20), x)
        return tape.gradient(made, x), tf.transpose(made, (1, 0, 2))

    for count in (4, 5):  # The order of a product's sums differs with the number of rows.
        run(step, rows=rng.normal(size=(count, 12)))


def test_a_right_step_passes():
    def step(x):
        mean, variance = tf.nn.moments(x, 0, keepdims=True)
        kept = tf.boolean_mask(x, x[:, 0] > 0)
        looped = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.sin(h)), (0, x))[1]
        joined = tf.concat([x, kept], 0) - mean
        extremes = tf.reduce_max(x, 0), tf.reduce_min(x), tf.reduce_any(x > 1)
        total = tf.reduce_sum(joined / variance)
        return tf.strings.as_string(x), total, looped, tf.sort(x, 0), extremes

    (made,) = run(step)
    _, expected, *_ = step(tf.constant(ROWS))
    np.testing.assert_allclose(made[1], expected)
