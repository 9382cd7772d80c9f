"""Steps of a user's own, divided over replicas: equal to the same step on one device."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.spmd.partition import Step
from replicas import assert_close, fit, per_replica
from tensorflow.python.distribute import values

X = np.random.default_rng(0).normal(size=(7, 6))
WEIGHTS = np.random.default_rng(1).normal(size=(6, 3))


def gradient_penalty(x, w):
    """TensorFlow adds results to the functions of the inner gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = tf.function(lambda y: tf.sin(y), autograph=False)(x @ w)
        chosen = tf.cond(w[0, 0] > 0.1, lambda: 2.0 * z, lambda: tf.square(z))
        score = tf.reduce_sum(chosen * x[:1, :1])
    return tf.reduce_sum(tf.square(tape.gradient(score, x)))


@pytest.mark.parametrize("counts", [(3, 2, 2), (7, 0, 0), (1, 6, 0)])
def test_gradients_of_gradients_are_those_of_the_whole_batch(counts):
    strategy = kdist.MirroredStrategy(replicas=3)
    with strategy.scope():
        weights = tf.Variable(WEIGHTS)

    def step(x):
        with tf.GradientTape() as tape:
            value = gradient_penalty(x, weights)
        weights.assign_sub(tape.gradient(value, weights))
        return value

    batch = per_replica(strategy, np.split(X, np.cumsum(counts[:-1])))
    run = tf.function(lambda x: strategy.run(step, args=(x,)), autograph=False)
    value = strategy.reduce("SUM", run(batch), axis=None)
    own = tf.Variable(WEIGHTS)
    with tf.GradientTape() as tape:
        expected = gradient_penalty(tf.constant(X), own)
    own.assign_sub(tape.gradient(expected, own))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for copy in weights.values:
        np.testing.assert_allclose(copy, own, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("replicas", [3])
def test_rows_of_unknown_rank_are_those_of_the_whole_batch(replicas):
    rows = np.arange(14.0).reshape(7, 2)
    strategy = kdist.MirroredStrategy(replicas=replicas)
    data = tf.data.Dataset.from_tensor_slices(rows)
    data = data.map(lambda row: tf.numpy_function(np.negative, [row], tf.float64)).batch(7)
    (batch,) = strategy.experimental_distribute_dataset(data)

    @tf.function
    def step(x):
        return tf.reduce_mean(tf.ensure_shape(x, (None, 2)), 0)

    np.testing.assert_allclose(strategy.run(step, (batch,)), -rows.mean(0), rtol=1e-12)


@pytest.mark.parametrize("shape", [(None, 3), (5, None)])
def test_a_batch_of_another_shape_is_an_error_as_on_one_device(shape):
    """Its rows are counted over all replicas, and its columns on each."""
    strategy = kdist.MirroredStrategy(replicas=2)
    data = tf.data.Dataset.from_generator(
        lambda: iter([np.ones((4, 2))]), output_signature=tf.TensorSpec([None, None], tf.float64)
    )
    batches = iter(strategy.experimental_distribute_dataset(data))

    @tf.function
    def step(batches):
        return strategy.run(lambda x: tf.reduce_sum(tf.ensure_shape(x, shape)), (next(batches),))

    with pytest.raises(tf.errors.InvalidArgumentError, match="is not compatible with expected"):
        step(batches)


def test_grouped_convolutions_that_only_xla_computes_are_divided(caplog):
    images = np.random.default_rng(0).normal(size=(7, 5, 5, 4)).astype("f4")

    def make():
        return keras.Sequential([keras.Input((5, 5, 4)), keras.layers.Conv2D(4, 3, groups=2)])

    weights = [
        fit(strategy, make, images, images[:, 1:4, 1:4]).get_weights()
        for strategy in (None, kdist.MirroredStrategy(replicas=3))
    ]
    assert_close(*weights, rtol=1e-5, atol=1e-6)
    assert "cannot be divided" not in caplog.text


@pytest.mark.parametrize("inside", [True, False])
def test_rows_are_reduced_inside_a_function_as_outside(inside):
    strategy = kdist.MirroredStrategy(replicas=3)
    batch = per_replica(strategy, [X[:3], X[3:6], X[6:]])

    @tf.function
    def run(x):
        rows = strategy.run(lambda x: 2 * x, (x,))
        return strategy.reduce("SUM", rows, axis=0) if inside else rows

    found = run(batch)
    if not inside:
        found = strategy.reduce("SUM", found, axis=0)
    np.testing.assert_allclose(found, 2 * X.sum(0), rtol=1e-12)


def test_gathered_rows_of_two_batches_keep_their_known_number():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            square = tf.linalg.diag(tf.concat([x, 2 * x], 0), k=1)
            loss = tf.reduce_sum(square**2)
        return square, tape.gradient(loss, x)

    strategy = kdist.MirroredStrategy(replicas=3)
    x = X[:, 0]
    batch = per_replica(strategy, [x[:3], x[3:4], x[4:]])
    square, gradient = tf.function(lambda x: strategy.run(step, (x,)))(batch)
    np.testing.assert_array_equal(square, np.diag(np.concatenate([x, 2 * x]), 1))
    np.testing.assert_allclose(strategy.gather(gradient, 0), 10 * x, rtol=1e-12)


def test_scalars_that_differ_between_replicas_are_refused():
    strategy = kdist.MirroredStrategy(replicas=2)
    run = tf.function(lambda x: strategy.run(lambda x: 2 * x, (x,)))
    assert float(run(per_replica(strategy, [3.0, 3.0]))) == 6
    with pytest.raises(tf.errors.InvalidArgumentError, match="scalar that differs"):
        run(per_replica(strategy, [3.0, 4.0]))


def test_a_dataset_of_scalars_is_refused():
    strategy = kdist.MirroredStrategy(replicas=2)
    with pytest.raises(UserError, match=r"call dataset\.batch\(n\)"):
        strategy.experimental_distribute_dataset(tf.data.Dataset.range(4))


def test_batches_that_meet_are_divided_alike_or_whole():
    strategy = kdist.MirroredStrategy(replicas=2)
    one, other = (per_replica(strategy, [X[:first], X[first:]]) for first in (3, 4))
    rows = tf.TensorSpec((None, 6), tf.float64)

    def run(x, y):
        return strategy.run(lambda x, y: tf.matmul(x, y, transpose_a=True), (x, y))

    np.testing.assert_allclose(tf.function(run)(one, other), X.T @ X, rtol=1e-12, atol=1e-12)
    spec = type(one._type_spec)(rows, rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="test_programs.py"):
        tf.function(run, input_signature=(spec, spec))(one, other)


def test_ragged_rows_of_one_length_stay_so():
    strategy = kdist.MirroredStrategy(replicas=2)
    numbers = np.arange(20.0).reshape(10, 2)
    data = tf.data.Dataset.from_tensors(tf.RaggedTensor.from_uniform_row_length(numbers, 2))
    (batch,) = strategy.experimental_distribute_dataset(data.unbatch().batch(5))

    @tf.function
    def step(x):
        assert x.uniform_row_length is not None
        return tf.reduce_sum(tf.reduce_max(x.to_tensor(), 0))

    expected = numbers.reshape(5, 2, 2).max(0).sum()
    np.testing.assert_allclose(strategy.run(step, (batch,)), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["RaggedTensor", "IndexedSlices"])
def test_parts_of_ragged_rows_and_of_slices_are_refused(kind):
    strategy = kdist.MirroredStrategy(replicas=2)
    part = tf.ragged.constant([[1.0], [2.0, 3.0]])
    if kind == "IndexedSlices":
        part = tf.IndexedSlices(tf.ones((1, 3)), tf.constant([0]))
    parts = values.PerReplica((part, part))
    for run in (strategy.run, tf.function(strategy.run)):
        with pytest.raises(UserError, match=f"{kind} for each replica.*to_tensor"):
            run(lambda given: given.values, args=(parts,))


def single_rows(x, counts):
    one = tf.ones([1, 4], x.dtype)
    labels = tf.constant([2])
    return [
        tf.reduce_sum(tf.tanh(tf.concat([x, one], 1))),
        tf.reduce_sum(tf.tanh(tf.stack([x[:, 0], one[0, :1]], 1)) ** 2),
        tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)),
        tf.reduce_sum(tf.tanh(tf.add_n([x, one]))),
        tf.reduce_sum(tf.tanh(tf.raw_ops.Select(condition=x > 0, x=x, y=one))),
        tf.matmul(*[tf.tanh(tf.ensure_shape(x, [1, 4]))] * 2, transpose_a=True),
    ]


def of_integers(x, counts):
    unsigned = tf.cast(tf.abs(counts), tf.uint32)
    one, other = tf.reduce_sum(unsigned[:, 0]), tf.reduce_sum(unsigned[:, 1])
    return [
        tf.reduce_mean(tf.reduce_sum(counts, 0)),
        tf.cast(one - other, tf.float64),
        tf.cast(other - one, tf.float64),
    ]


def sizes_in_lists(x, counts):
    rows, written = tf.shape(x)[0], tf.reduce_sum(counts) > 10**6
    both = tf.TensorArray(tf.int32, 2, element_shape=[], clear_after_read=False)
    both = tf.cond(written, lambda: both.write(0, 2 * rows), lambda: both.write(0, rows))
    return [tf.ones([both.read(0)]), tf.ones([both.read(1) + 1])]


def single_rows_of_branches(x, counts):
    row = tf.zeros([1, 4], x.dtype)
    return [tf.cond(tf.reduce_sum(counts) > n, lambda: x, lambda: row) for n in (-999, 999)]


def zeros_divided(x, counts):
    total, zero = tf.reduce_sum(x, 0), tf.cast(tf.reduce_sum(counts) * 0, x.dtype)
    return tf.cond(zero < 1, lambda: total / zero, lambda: total)


def sizes_to_infer(x, counts):
    y = tf.reshape(x, tf.stack([tf.shape(x)[0], tf.reduce_sum(counts) * 0 - 1]))
    return [tf.shape(y), tf.reduce_mean(y)]


def shapes_that_differ(x, counts):
    return x == tf.ones([5, 4], x.dtype)


def indices_in_other_types(x, counts):
    return tf.gather(x, tf.cast(tf.cast(tf.range(tf.shape(x)[0]), "bool"), "int32"))


def sizes_rounded_to_zero(x, counts):
    columns = tf.shape(x)[1] - 1
    widths = [-tf.truncatediv(-columns, 2), 4 + tf.raw_ops.Mod(x=-columns, y=2)]
    widths.append(tf.cast(tf.cast(columns + 255, tf.uint8), tf.int32))
    return [tf.reduce_sum(tf.sin(x[:, :width])) for width in widths]


@pytest.mark.parametrize(
    ("fn", "parts"),
    [
        (sizes_rounded_to_zero, (4, 3)),
        (single_rows, (1, 0)),
        (of_integers, (4, 3)),
        (sizes_in_lists, (4, 3)),
        (single_rows_of_branches, (4, 3)),
        (single_rows_of_branches, (1, 0)),
        (zeros_divided, (4, 0)),
        (sizes_to_infer, (4, 3)),
        (sizes_to_infer, (1, 0)),
        (shapes_that_differ, (4, 3)),
        (indices_in_other_types, (4, 3)),
    ],
)
def test_rules_assume_only_the_definition_of_an_operation(fn, parts):
    strategy = kdist.MirroredStrategy(replicas=2)
    counts = np.array([[0, 1, 0, 0]] * 3 + [[0] * 4] + [[2, 0, 0, 0]] * 3, "i4")[: sum(parts)]
    arrays = [np.random.default_rng(1).normal(size=counts.shape), counts]
    specs = [tf.TensorSpec((None, 4), array.dtype) for array in arrays]
    whole = tf.function(fn).get_concrete_function(*specs)(*map(tf.constant, arrays))

    def run(*batches):
        results = strategy.run(fn, batches)
        return tf.nest.map_structure(lambda one: strategy.gather(one, 0), results)

    divided = [per_replica(strategy, np.split(array, parts[:1])) for array in arrays]
    specs = [type(one._type_spec)(spec, spec) for one, spec in zip(divided, specs, strict=True)]
    step = tf.function(run).get_concrete_function(*specs)
    assert_close(tf.nest.flatten(step(*divided)), tf.nest.flatten(whole), rtol=1e-12, atol=1e-12)


def test_a_variable_made_in_the_step_starts_with_what_is_computed_there():
    strategy = kdist.MirroredStrategy(replicas=2)
    made = []

    @tf.function
    def run(x):
        def step(x):
            if not made:
                made.append(tf.Variable(tf.ones(3) * 2))
            return tf.reduce_sum(x) * made[0]

        return strategy.run(step, (x,))

    np.testing.assert_allclose(run(tf.constant([1.0, 2.0])), [6.0] * 3)
    with pytest.raises(ValueError, match="depends on the step's data"):
        strategy.run(tf.function(lambda x: tf.Variable(x[0])), (tf.constant([1.0, 2.0]),))


def switching(features):
    class Experts(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(3, shape[-1]), initializer="ones")

        def call(self, x):
            experts = [lambda i=i: x * self.kernel[i] for i in range(3)]
            chosen = tf.switch_case(tf.constant(1), experts)
            body = lambda i, y: (i + 1, tf.tanh(y * self.kernel[0]))  # noqa: E731
            return tf.while_loop(lambda i, _: i < 3, body, (0, chosen), maximum_iterations=3)[1]

    return [Experts(), keras.layers.Dense(features)]


def recurrent(features):
    return [keras.layers.Reshape((3, 2)), keras.layers.LSTM(features)]


@pytest.mark.parametrize("layers", [switching, pytest.param(recurrent, marks=pytest.mark.slow)])
def test_xla_compiles_conditions_and_loops(layers):
    check_with_xla(layers)


def test_xla_reads_a_variable_of_another_device():
    factor = tf.Variable(0.5)  # made outside the scope: it is on one device

    def scaled(features):
        return [keras.layers.Dense(features), keras.layers.Lambda(lambda x: x * factor)]

    check_with_xla(scaled)


def draws(x):
    rows, results = tf.shape(x)[0], []
    for number, columns in enumerate((3, 4)):
        shape = (rows, columns, 1)
        for dtype in (tf.float32, tf.float64):
            for draw in (
                tf.random.stateless_normal,
                tf.random.stateless_uniform,
                tf.random.stateless_truncated_normal,
            ):
                results.append(draw(shape, (1, number), dtype=dtype))
        results.append(tf.random.stateless_uniform(shape, (1, 2), 0, 9, tf.int64))
        results.append(tf.random.stateless_uniform(shape, (1, 2), None, None, tf.int32))
    return results


@pytest.mark.slow
def test_xla_draws_for_each_row_what_it_draws_on_one_device():
    strategy = kdist.MirroredStrategy(replicas=2)
    for x, first in ((X, 4), (X[:6], 1)):
        batch = per_replica(strategy, [x[:first], x[first:]])
        run = tf.function(
            lambda batch: strategy.run_step(Step(draws, jit_compile=True), (batch,)),
            autograph=False,
        )
        compiled = tf.function(draws, jit_compile=True, autograph=False)
        for one, several in zip(compiled(tf.constant(x)), run(batch), strict=True):
            np.testing.assert_array_equal(strategy.gather(several, 0), one)


def check_with_xla(layers):
    def weights(replicas, jit_compile):
        strategy = kdist.MirroredStrategy(replicas=replicas)
        model = lambda: keras.Sequential([keras.Input((6,)), *layers(3)])  # noqa: E731
        return fit(strategy, model, X, X[:, :3], jit_compile=jit_compile).get_weights()

    assert_close(weights(2, True), weights(1, False), rtol=1e-5, atol=1e-6)


def test_a_function_is_traced_again_for_another_variable():
    """TensorFlow runs what it has traced for the first one."""
    found = []
    for strategy in (tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=2)):
        with strategy.scope():
            one, other = tf.Variable(tf.zeros([4])), tf.Variable(tf.zeros([4]))

        @tf.function
        def change(x, y):
            x.assign(x * 0.5 + 1.0)
            y.assign(y + x)
            return x * 1.0

        def step():
            return change(one, other) + 10.0 * change(other, one)  # noqa: B023

        for _ in range(2):
            total = tf.function(lambda: strategy.run(step))()  # noqa: B023
        found.append([total, one.numpy(), other.numpy()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_a_metric_made_outside_the_scope_counts_in_every_epoch():
    found = []
    for strategy in (tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=2)):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
        metrics = [keras.metrics.MeanAbsoluteError(name="error")]
        model.compile("sgd", "mse", metrics=metrics)
        data = (X, X[:, :3])
        fit = model.fit(*data, epochs=3, validation_data=data, batch_size=4, verbose=0)
        found.append([fit.history["error"], fit.history["val_error"]])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("reduce", [tf.reduce_max, tf.reduce_prod])
def test_a_gradient_of_a_compiled_condition_has_reductions_in_one_branch_alone(reduce):
    """XLA's condition returns nothing for them from the other branch, which no gradient reads."""
    strategy = kdist.MirroredStrategy(replicas=2)
    weights = tf.constant([1.0, 2.0, 3.0])

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            z = x * weights
            result = tf.cond(
                weights[0] > 0, lambda: tf.reshape(reduce(z, 0), [3]), lambda: reduce(x, 0)
            )
            loss = tf.reduce_sum(result**2)
        return loss, tape.gradient(loss, weights)

    x = tf.constant(np.random.default_rng(4).normal(size=(6, 3)), tf.float32)
    run = tf.function(
        lambda batch: strategy.run_step(Step(step, jit_compile=True), (batch,)), autograph=False
    )
    made = run(per_replica(strategy, [x[:4], x[4:]]))
    assert_close(made, step(x), rtol=1e-5)


def test_rows_are_not_gathered_if_a_later_operation_shows_that_they_fit():
    strategy = kdist.MirroredStrategy(replicas=2)

    def step(x, y, p, q):
        product = tf.concat([x, y], 0) * tf.concat([p, q], 0)
        return tf.reduce_sum(product), tf.reduce_sum(x + p), tf.reduce_sum(y + q)

    arrays = [np.random.default_rng(n).normal(size=(5 + n % 2, 3)) for n in (0, 1, 2, 3)]
    batches = [per_replica(strategy, [a[:2], a[2:]]) for a in arrays]
    strategy.explained_rows = 5
    run = tf.function(lambda *args: strategy.run(step, args=args), autograph=False)
    np.testing.assert_allclose(run(*batches), step(*map(tf.constant, arrays)), rtol=1e-12)
    assert strategy.explanation.gathered == 0
    assert not strategy.explanation.places


def test_sums_of_unequal_shapes_are_refused():
    strategy = kdist.MirroredStrategy(replicas=2)

    def run(x):
        rows = tf.reduce_sum(tf.stop_gradient(x), 0)
        return tf.add_n([rows, rows[: tf.minimum(tf.shape(x)[0], 1)], rows])

    spec = tf.TensorSpec((None, 4), tf.float64)
    step = tf.function(lambda x: strategy.run(run, (x,)), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="same size and shape"):
        step.get_concrete_function(spec)(tf.ones((6, 4), tf.float64))
