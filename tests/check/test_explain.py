"""`kdist.explain`: what is divided, what is not, and where; its counts against TensorFlow's."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.spmd.costs import Costs, Work
from kdist.spmd.explanation import Explanation, Place
from kdist.spmd.plan import GraphPlan
from keras import layers, ops
from tensorflow.python.framework.ops import get_stats_for_node_def

ROWS, FEATURES = 24, 6
X = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype("float32")
Y = X[:, :1]
FLOAT32 = 4


@pytest.fixture(scope="module")
def strategy():
    return kdist.MirroredStrategy(replicas=3)


def compiled(model):
    model.compile("adam", "mse", metrics=["mae"])
    return model


def sequential(*hidden):
    return compiled(keras.Sequential([keras.Input((FEATURES,)), *hidden, layers.Dense(1)]))


def explained(strategy, build, batch=(X, Y)):
    return kdist.explain(strategy.build(build), batch)


def test_dense_layers_are_divided_and_their_gradients_summed(strategy):
    found = explained(strategy, lambda: sequential(layers.Dense(8, "relu")))
    weights = FEATURES * 8 + 8 + 8 + 1
    assert found.weights == weights * FLOAT32
    assert found.optimizer == 2 * weights * FLOAT32 + 8 + FLOAT32  # and its steps and rate
    step = found.step
    assert (step.divided_share, step.places, step.rounds, step.rows) == (1, (), 1, ROWS)
    assert 0 <= step.summed - found.weights <= 10 * FLOAT32  # and losses and metrics
    # Of the first layer there is no gradient of the inputs.
    products = 2 * ROWS * (2 * FEATURES * 8 + 3 * 8)
    assert products < step.work.divided < 2 * products
    assert 2 < step.most_speedup < 3


def test_a_decorated_step_is_explained_as_fit_divides_it(strategy):
    """`fit` gathers logs that have the rows of the batch."""

    class OfRows(keras.Model):
        @tf.function
        def train_step(self, data):
            return keras.Model.train_step(self, data) | {"rows": data[0]}

    def build():
        inputs = keras.Input((FEATURES,))
        return compiled(OfRows(inputs, layers.Dense(1)(inputs)))

    assert explained(strategy, build).step.gathered == X.nbytes


def recurrent():
    return sequential(layers.Reshape((3, 2)), layers.LSTM(4))


def normalized():
    return sequential(layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5))


@pytest.mark.parametrize("build", [recurrent, normalized])
def test_any_number_of_rows_is_divided_as_a_known_one_is(strategy, build):
    fixed = tf.data.Dataset.from_tensor_slices((X, Y)).batch(ROWS, drop_remainder=True)
    some, known = explained(strategy, build), explained(strategy, build, fixed)
    for found in (some, known):
        assert found.step.divided_share == 1
        assert found.step.rows == ROWS
    assert known.step.work.divided == pytest.approx(some.step.work.divided, rel=0.2)


def test_a_loop_counts_as_often_as_it_runs(strategy):
    steps = [
        explained(strategy, lambda n=n: sequential(layers.Reshape((n, -1)), layers.GRU(32))).step
        for n in (2, 6)
    ]
    state = 2 * ROWS * 32 * 3 * 32  # of the state with the recurrent kernel, in each step
    more = steps[1].work.divided - steps[0].work.divided
    assert 2.5 * 4 * state < more < 4 * 4 * state


class OwnStep(keras.Model):
    """Trains on a loss that compares rows."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(x, y)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Sorted(OwnStep):
    def loss_of(self, x, y):
        errors = ops.square(y - self(x, training=True))
        return ops.mean(ops.sort(errors[:, 0])[-3:])  # gathered here


class Halves(OwnStep):
    def loss_of(self, x, y):
        half = ops.shape(x)[0] // 2
        return ops.mean(self(x[:half])) - ops.mean(self(x[half:]))  # and here


class OneByOne(OwnStep):
    def loss_of(self, x, y):
        return ops.mean(tf.map_fn(lambda row: self(row[None])[0], x))  # and, too, here


def own(step):
    def build():
        inputs = keras.Input((FEATURES,))
        model = step(inputs, layers.Dense(1)(layers.Dense(64, "relu")(inputs)))
        model.compile("adam")
        return model

    return build


@pytest.mark.parametrize(
    ("step", "line", "gathered", "divided", "is_known"),
    [
        (Sorted, "# gathered here", ROWS * FLOAT32, (0.9, 1), False),
        (Halves, "# and here", ROWS * FEATURES * FLOAT32, (0, 0.01), False),
        (Halves, "# and here", ROWS * FEATURES * FLOAT32, (0, 0.01), True),
        (OneByOne, "# and, too, here", ROWS * FEATURES * FLOAT32, (0, 0.01), False),
    ],
)
def test_the_line_that_needs_all_rows_is_named(strategy, step, line, gathered, divided, is_known):
    fixed = tf.data.Dataset.from_tensor_slices((X, Y)).batch(ROWS, drop_remainder=True)
    found = explained(strategy, own(step), fixed if is_known else (X, Y)).step
    assert divided[0] <= found.divided_share <= divided[1]
    (place,) = [one for one in found.places if one.name.endswith(line)]
    assert place.name.startswith("tests/check/test_explain.py:")
    assert place.gathered == gathered
    assert found.gathered >= gathered
    if divided[1] < 1:
        assert found.places[0] is place
        assert f"about {1 - found.divided_share:.0%}" in found.warning()
        assert place.name[:60] in found.warning()


@pytest.mark.parametrize(("whole", "is_told"), [(4, False), (6, True)])
def test_a_message_tells_of_a_felt_share_in_places_that_fit_a_screen(whole, is_told):
    names = ["model.py:31: x = tf.sort(x)", "model.py:32: y = tf.cumsum(" + "x, " * 90, "c", "d"]
    places = tuple(Place(name, {"Sort": None}, flops=1.0) for name in names)
    work = Work(divided=100.0 - whole, whole=float(whole), repeated=0.0)
    found = Explanation(2, 64, work, places, rounds=1, summed=0.0, gathered=0.0)
    assert (found.warning() is not None) is is_told
    if is_told:
        head, told = found.warning().split(": ", 2)[1:]
        assert head.startswith("about 6% of this step cannot be divided")
        first, second, rest = told.split("; ")
        assert (first, rest) == ("model.py:31: x = tf.sort(x) (Sort)", "c (Sort) and 1 more")
        assert second == names[1][:78] + " …"
    assert found.places[1].name == names[1]


def test_it_reads_on_one_screen_and_leaves_the_model_as_it_is(strategy):
    model = strategy.build(own(Sorted))
    weights, drawn = model.get_weights(), tf.random.uniform(())
    tf.random.set_seed(0)
    tf.random.uniform(())
    text = str(kdist.explain(model, (X, Y)))
    assert tf.random.uniform(()) != drawn
    for one, other in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.optimizer.iterations.numpy() == 0
    lines = text.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert "3 replicas (CPU:0, CPU:1, CPU:2), a batch of 24 rows" in lines[0]
    assert "rounds of exchanges" in lines[1]
    model.fit(X, Y, batch_size=8, verbose=0)


def test_the_update_of_an_embedding_is_no_work_that_could_be_divided(strategy):
    def build():
        model = sequential(layers.Embedding(50, 4), layers.Flatten())
        model.compile("adagrad", "mse")
        return model

    step = explained(strategy, build, (np.zeros((ROWS, FEATURES), "int32"), Y)).step
    assert step.gathered > 0
    assert step.work.whole == 0
    assert step.warning() is None


def test_bad_input_is_refused(strategy):
    with pytest.raises(UserError, match=r"not compiled: call model.compile"):
        kdist.explain(keras.Sequential([keras.Input((2,)), layers.Dense(1)]), X)
    with pytest.raises(UserError, match="no strategy of kdist, so nothing is divided"):
        kdist.explain(sequential(), (X, Y))
    with pytest.raises(UserError, match="under one replica"):
        explained(kdist.MirroredStrategy(replicas=1), sequential)
    with pytest.raises(UserError, match="rows along the first axis"):
        explained(strategy, sequential, 3.0)
    with pytest.raises(UserError, match=r"does not take this batch \(.*\): .* such as \(x, y\)"):
        explained(strategy, sequential, X)


def products():
    """Operations on inputs of known sizes, of which TensorFlow counts the work, too."""
    x = tf.ones((4, 8, 8, 3))
    kernel, each = tf.ones((3, 2, 3, 5)), tf.ones((3, 2, 3, 2))
    with tf.GradientTape() as tape:
        tape.watch([x, kernel, each])
        y = tf.nn.conv2d(x, kernel, 2, "SAME")
        z = tf.nn.depthwise_conv2d(x, each, [1, 1, 1, 1], "VALID")
        w = tf.matmul(tf.reshape(y, (4, -1)), tf.ones((80, 7)))
        v = tf.matmul(tf.ones((4, 6, 5)), tf.ones((4, 7, 5)), transpose_b=True)
        total = tf.reduce_sum(w) + tf.reduce_sum(z) + tf.reduce_sum(v)
    return tape.gradient(total, [x, kernel, each])


def test_products_are_counted_as_tensorflow_counts_them():
    graph = tf.function(products, autograph=False).get_concrete_function().graph
    plan = GraphPlan()
    plan.plan_operations(op for op in graph.get_operations() if op.type != "Placeholder")
    counted = {}
    for item, work, _ in Costs(plan, rows=1).each_operation():
        expected = get_stats_for_node_def(graph, item.op.node_def, "flops").value
        if item.op.type.startswith(("MatMul", "BatchMatMul", "Conv2D", "Depthwise")) and expected:
            counted[item.op.type] = (work.total, float(expected))
    assert {"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput", "MatMul"} <= counted.keys()
    for got, expected in counted.values():
        assert got == expected, counted


def test_an_einsum_counts_as_the_product_that_it_is():
    @tf.function(autograph=False)
    def step(x, y):
        return tf.einsum("...ij,jk->...ik", x, y), tf.matmul(tf.reshape(x, (-1, 5)), y)

    graph = step.get_concrete_function(tf.ones((2, 3, 4, 5)), tf.ones((5, 6))).graph
    plan = GraphPlan()
    for placeholder in graph.inputs:
        plan.set_input(placeholder, kdist.spmd.placements.REPLICATE)
    plan.plan_operations(op for op in graph.get_operations() if op.type != "Placeholder")
    found = {item.op.type: work.total for item, work, _ in Costs(plan, rows=1).each_operation()}
    assert found["Einsum"] == found["MatMul"] == 2 * 2 * 3 * 4 * 5 * 6
