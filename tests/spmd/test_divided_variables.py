"""Steps with variables that are divided over the replicas, against the same with whole ones."""

import functools

import kdist
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.spmd.divided_variables import DividedVariable, Division, choose_division
from replicas import assert_close, divide

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module", "small", "verified")

ROWS, COLUMNS = 5, 3  # of a variable
SAMPLES = 7


@pytest.fixture
def verified(monkeypatch):
    monkeypatch.setenv("KDIST_VERIFY", "1")


def table(factor=1.0):
    return tf.reshape(tf.range(1.0, ROWS * COLUMNS + 1), (ROWS, COLUMNS)) / 16.0 * factor


def scattered(kind, nd=False):
    """Change rows that the samples name, some of them twice."""

    def step(v, w, x):
        # Equal values: the order of two writes is not defined.
        updates = tf.ones_like(x) if kind == "Update" else 1 + x / 4
        rows = tf.cast(tf.math.floormod(tf.range(tf.shape(x)[0]), ROWS), tf.int32)
        if nd:
            operation = getattr(tf.raw_ops, f"ResourceScatterNd{kind}")
            changed = operation(ref=v.handle, indices=rows[:, None], updates=updates)
        else:
            operation = getattr(tf.raw_ops, f"ResourceScatter{kind}")
            changed = operation(resource=v.handle, indices=rows, updates=updates)
        with tf.control_dependencies([changed]):
            return tf.reduce_sum(v * 2)

    return step


def in_a_condition(choose, *, fails=False):
    """Changes both variables in one branch, and one in the other."""

    def step(v, w, x):
        mean = tf.reduce_mean(x, 0)
        many = tf.reduce_sum(tf.ones_like(x)) > 0

        def first():
            v.assign(v * 0.5 + mean)
            w.assign_add(tf.sqrt(tf.reduce_sum(v**2)) + v)
            return tf.reduce_sum(w) if not fails else tf.reduce_sum(tf.gather(w, [0, 2]))

        def second():
            v.assign_sub(v * mean)
            return tf.reduce_max(v)

        return tf.cond(many if choose else tf.logical_not(many), first, second)

    return step


def in_conditions_that_may_not_run(v, w, x):
    """Each has an operation that is an error where the other branch is due."""
    some, others = tf.boolean_mask(x, x[:, 0] > 0), tf.boolean_mask(x, x[:, 1] > 0.9)
    power = tf.size(others) - 100

    def squared():
        v.assign(v * tf.cast(tf.pow(2, power), x.dtype))
        return tf.reduce_sum(v)

    def added():
        w.assign_add(v * tf.reduce_sum(some + others))
        return tf.reduce_sum(w)

    def spread():
        v.assign_add(tf.math.unsorted_segment_sum(x, ids, ROWS))
        return tf.reduce_sum(v)

    ids = 2 * tf.range(tf.shape(x)[0])
    due = [
        (power > 0, squared),
        (tf.equal(tf.shape(some)[0], tf.shape(others)[0]), added),
        (tf.reduce_max(ids) < ROWS, spread),
    ]
    return [tf.cond(test, branch, lambda: tf.constant(0.0, x.dtype)) for test, branch in due]


def in_nested_conditions(v, w, x):
    total = tf.reduce_sum(x)

    def inner():
        v.assign_add(w)
        return tf.cond(total > 1e9, lambda: v + 1.0, lambda: w.assign_add(v * 2) + 0.0)

    return tf.cond(total < 1e9, inner, lambda: w * 1.0)


def in_a_case(v, w, x):
    branches = [lambda i=i: v.assign_add(w * (i + 1.0)) + tf.reduce_mean(x) for i in range(3)]
    return tf.switch_case(tf.cast(tf.reduce_sum(x) > -1e9, tf.int32), branches)


def with_a_print(v, w, x):
    def changed():
        tf.print("once", output_stream="file:///dev/null")
        v.assign_add(w)
        return tf.reduce_sum(v)

    return tf.cond(tf.reduce_sum(x) < 1e9, changed, lambda: tf.constant(0.0, x.dtype))


def checked(v, w, x):
    def changed():
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_sum(w) > -1e9, ["small"])]):
            return tf.reduce_sum(v.assign_add(w))

    return tf.cond(tf.reduce_sum(x) < 1e9, changed, lambda: tf.constant(0.0, x.dtype))


def looked_up(v, w, x):
    rows = tf.cast(tf.math.floormod(tf.range(tf.shape(x)[0]), ROWS), tf.int32)
    v.assign_add(w)
    return tf.gather(v, rows) * x + v.sparse_read(rows) + tf.gather_nd(w, rows[:, None])


def with_as_many_rows(v, w, x):
    """A batch that happens to have the variable's size is another one's rows all the same."""
    v.assign(v + x[:ROWS] * 2)
    return tf.concat([v, w], 0) + 1.0


def of_shapes(v, w, x):
    size = tf.cast(tf.shape(v)[0] + tf.raw_ops.VariableShape(input=v.handle)[1], x.dtype)
    v.assign(v * size)
    return tf.reduce_sum(x) * size


def compiled(v, w, x):
    """Writes do not depend on reads."""

    @tf.function(jit_compile=True, autograph=False)
    def swap():
        old = v + 0.0
        v.assign(w + 1.0)
        w.assign(old)

    swap()
    return tf.reduce_mean(x)


def row_by_a_number(v, w, x):
    v.scatter_update(tf.IndexedSlices(tf.reduce_mean(x, 0), tf.constant(2)))
    w.scatter_add(tf.IndexedSlices(tf.constant(1.0, x.dtype), tf.constant([[0], [4]])))
    return tf.reduce_sum(v)


def slice_assigned(v, w, x):
    v[1:3].assign(w[:2] + tf.reduce_mean(x))
    w[0, 1:].assign(tf.reduce_sum(x, 0)[1:])
    return v * 1.0


def written_twice(v, w, x):
    before = v * 1.0
    v.assign(w)
    w.assign(before + tf.reduce_sum(x, 0))
    v.assign_add(w)
    return before + v


def gradient_of_a_loop(v, w, x):
    with tf.GradientTape() as tape:
        _, one = tf.while_loop(
            lambda i, one: i < 3, lambda i, one: (i + 1, tf.sin(one) - tf.reduce_max(v)), (0, v)
        )
        loss = tf.reduce_sum(one * w) + tf.reduce_mean(x)
    v.assign_sub(tape.gradient(loss, v))
    return loss


STEPS = {
    "gradient of a loop": gradient_of_a_loop,
    "read": lambda v, w, x: v + tf.reduce_mean(x, 0),
    "condition, then": in_a_condition(True),
    "condition, else": in_a_condition(False),
    "condition that may fail, then": in_a_condition(True, fails=True),
    "condition that may fail, else": in_a_condition(False, fails=True),
    "conditions that may not run": in_conditions_that_may_not_run,
    "nested conditions": in_nested_conditions,
    "case": in_a_case,
    "print": with_a_print,
    "assert": checked,
    "gather": looked_up,
    "as many rows": with_as_many_rows,
    "shapes": of_shapes,
    "written twice": written_twice,
    "compiled": compiled,
    "row by a number": row_by_a_number,
    "slice assigned": slice_assigned,
    "sums": lambda v, w, x: [tf.reduce_sum(v, 0), tf.reduce_mean(w, 1), tf.reduce_max(v)],
    "transposed": lambda v, w, x: w.assign(tf.transpose(tf.matmul(v, w, transpose_b=True))[:, :3]),
    "sorted": lambda v, w, x: v.assign(tf.sort(w, 0)) + 0.0,
    **{f"scatter {k}": scattered(k) for k in ("Add", "Sub", "Update", "Mul", "Div", "Min", "Max")},
    **{
        f"scatter nd {kind}": scattered(kind, nd=True)
        for kind in ("Add", "Sub", "Update", "Min", "Max")
    },
}


def made(strategy, value):
    """Return a variable that is made as an optimizer makes its state: beside another one."""
    with strategy.scope():
        beside = tf.Variable(0.0)
        with strategy.extended.colocate_vars_with(beside):
            variable = tf.Variable(value)
    assert isinstance(variable, DividedVariable)
    return variable


def run(step, strategy, times=4):
    """Return what two calls of a step return, and the variables afterwards."""
    x = np.sin(np.arange(1.0, SAMPLES * COLUMNS + 1).reshape(SAMPLES, COLUMNS))
    batches = tf.data.Dataset.from_tensor_slices(x).batch(SAMPLES).repeat(times)
    if strategy is None:
        v, w = tf.Variable(tf.cast(table(), x.dtype)), tf.Variable(tf.cast(table(2), x.dtype))
        own = tf.function(functools.partial(step, v, w), autograph=False)
        results = [own(batch) for batch in batches]
    else:
        v, w = (made(strategy, tf.cast(table(factor), x.dtype)) for factor in (1, 2))

        @tf.function(autograph=False)
        def own(batch):
            return strategy.run(functools.partial(step, v, w), args=(batch,))

        found = [own(batch) for batch in strategy.experimental_distribute_dataset(batches)]
        results = [strategy.gather(one, axis=0) for one in found]
    return [*tf.nest.flatten(results), v, w]


@pytest.mark.parametrize("replicas", [pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_the_same(name, replicas):
    expected = run(STEPS[name], None)
    strategy = kdist.MirroredStrategy(replicas=replicas, shard_optimizer=True)
    found = run(STEPS[name], strategy)
    assert len(found) == len(expected)
    assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_an_operation_that_cannot_be_divided_is_named():
    """An unknown operation takes the whole variable."""
    strategy = kdist.MirroredStrategy(replicas=2, shard_optimizer=True)
    momentum = made(strategy, tf.zeros((ROWS, COLUMNS)))

    def step(x):
        zeros = tf.zeros_like(momentum)
        tf.raw_ops.ResourceApplyGradientDescent(var=momentum.handle, alpha=0.1, delta=zeros)
        return x

    batch = divide(strategy, np.zeros((4, 2), "float32"))
    with pytest.raises(
        UserError, match=r"ResourceApplyGradientDescent \(.*test_divided.*shard_opt"
    ):
        tf.function(lambda b: strategy.run(step, args=(b,)), autograph=False)(batch)


def test_a_variable_is_a_whole_one_to_everyone():
    strategy = kdist.MirroredStrategy(replicas=3, shard_optimizer=True)
    value = table().numpy()
    variable = made(strategy, value)
    assert [part.shape.as_list() for part in variable.parts] == [[2, 3], [2, 3], [1, 3]]
    assert [part.device[-5:] for part in variable.parts] == ["CPU:0", "CPU:1", "CPU:2"]
    assert variable.shape == value.shape
    np.testing.assert_array_equal(variable.numpy(), value)
    np.testing.assert_array_equal(variable * 2 - variable[:1], value * 2 - value[:1])
    np.testing.assert_array_equal(tf.function(lambda: variable + 1)(), value + 1)
    variable.assign_add(value)
    variable.assign_sub(np.ones_like(value))
    np.testing.assert_array_equal(variable, 2 * value - 1)
    tf.function(lambda: variable.assign(value))()
    np.testing.assert_array_equal(variable, value)
    for wrong in (value[:3], value[:, :2], 1.0):
        with pytest.raises(ValueError, match=r"shape \(.*\).* of the shape \(5, 3\)"):
            variable.assign(wrong)
    np.testing.assert_array_equal(variable, value)
    assert strategy.extended.variable_created_in_scope(variable)
    np.testing.assert_array_equal(strategy.extended.read_var(variable), value)
    np.testing.assert_array_equal(tf.gather(variable, [[4, 0]]), value[[[4, 0]]])
    np.testing.assert_array_equal(tf.gather_nd(variable, [[4, 0]]), value[4:, 0])


@pytest.mark.parametrize("traced", [False, True])
def test_rows_are_changed_outside_of_a_step(traced):
    strategy = kdist.MirroredStrategy(replicas=2, shard_optimizer=True)
    plain, variable = tf.Variable(table()), made(strategy, table())
    rows = tf.IndexedSlices(1 + tf.reshape(tf.range(9.0), (3, 3)) / 8, tf.constant([4, 0, 4]))
    first = tf.IndexedSlices(tf.fill((3,), 0.75), tf.constant(0))
    for kind in ("add", "sub", "min", "max", "mul", "div"):
        for one in (plain, variable):
            change = functools.partial(getattr(one, f"scatter_{kind}"), rows)
            (tf.function(change, autograph=False) if traced else change)()
    for one in (plain, variable):
        one.scatter_update(first)
        one[1:3, 0].assign([5.0, 6.0])
        for kind, value in (
            ("update", 9.0),
            ("add", 2.0),
            ("sub", 1.0),
            ("min", 4.0),
            ("max", 7.0),
        ):
            change = functools.partial(
                getattr(one, f"scatter_nd_{kind}"), [[0, 1], [4, 2]], [value, value + 1]
            )
            (tf.function(change, autograph=False) if traced else change)()
        one.batch_scatter_update(
            tf.IndexedSlices(tf.constant([[7.0], [8.0], [9.0], [1.0], [2.0]]), [[2]] * 5)
        )
    np.testing.assert_allclose(variable, plain, rtol=1e-6)
    with pytest.raises(TypeError, match="not IndexedSlices"):
        variable.scatter_add(1.0)


def test_an_update_outside_of_a_step_is_made_once():
    strategy = kdist.MirroredStrategy(replicas=2, shard_optimizer=True)
    momentum = made(strategy, np.ones((4, 2)))
    with strategy.scope():
        weights = tf.Variable(np.zeros((4, 2)))
        count = tf.Variable(0)  # which every replica has

    def update(own, gradient):
        count.assign_add(1)
        momentum.assign_add(gradient)
        own.assign_sub(momentum * 0.5)

    for call in (strategy.extended.update, tf.function(strategy.extended.update, autograph=False)):
        with strategy.scope():
            call(weights, update, args=(np.ones((4, 2)),), group=False)
    np.testing.assert_array_equal(momentum, np.full((4, 2), 3.0))
    for copy in weights.values:
        np.testing.assert_array_equal(copy, np.full((4, 2), -2.5))
    assert [copy.numpy() for copy in count.values] == [2, 2]


@pytest.mark.parametrize("parts", [2, 3, 4, 8])
def test_a_division_is_even(parts, monkeypatch):
    monkeypatch.undo()  # the sizes of users
    for shape in [(3, 3, 160, 160), (768, 30522), (30522, 768), (513, 512), (8192,), (1, 4096)]:
        division = choose_division(shape, parts)
        assert sum(division.sizes) == shape[division.axis]
        assert len(division.sizes) == parts
        assert max(division.sizes) * parts <= 1.05 * shape[division.axis]
    for shape in [(10,), (64, 63), (3, 3, 7, 65), (None, 4096), None, ()]:
        assert choose_division(shape, parts) is None
    assert choose_division((4096, 4096), 1) is None
    assert choose_division((9, 1000), 4) == Division(1, (250, 250, 250, 250))
