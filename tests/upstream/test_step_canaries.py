"""What stock Keras and TensorFlow do to optimizers, metrics and layers on several replicas."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from stock_models import copies, linear, of_layer, on_replicas, with_test_step

ROWS = np.array([[1.0], [2.0], [3.0], [9.0]])


def on_both(stock, measure):
    """What `measure` gives under TensorFlow's strategy and under kdist's."""
    return [measure(strategy) for strategy in (stock, kdist.MirroredStrategy(replicas=2))]


def test_gradients_are_clipped_before_they_are_summed(stock):
    # The replicas' gradients point apart and are both clipped; their sum would be clipped to 1.
    x, y = np.ones((4, 1)), np.array([[300.0], [300.0], [-100.0], [-100.0]])

    def weight(strategy):
        with strategy.scope():
            optimizer = keras.optimizers.SGD(1.0, clipvalue=1.0)
        model = linear(strategy, optimizer)
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        return float(model.get_weights()[0][0, 0])

    assert on_both(stock, weight) == pytest.approx([0, 1])


@pytest.mark.parametrize(
    "options", [{"gradient_accumulation_steps": 2}, {"use_ema": True, "ema_overwrite_frequency": 2}]
)
def test_the_optimizer_crashes_on_conditions(stock, options):
    model = linear(stock, keras.optimizers.SGD(0.1, **options))
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        model.fit(np.ones((8, 1)), np.ones((8, 1)), batch_size=4, verbose=0)


def test_loss_scaling_looks_at_the_gradients_of_one_replica(stock):
    # The second replica's gradient is infinite.
    x, y = np.ones((4, 1)), np.array([[0.0], [0.0], [0.0], [-np.inf]])

    def weight(strategy):
        with strategy.scope():
            dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            model = OwnStep([keras.Input((1,)), dense])
            model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        return float(model.get_weights()[0][0, 0])

    scaled, skipped = on_both(stock, weight)
    assert not np.isfinite(scaled)
    assert skipped == 1


class OwnStep(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self(x) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def test_a_custom_step_weights_uneven_batches_evenly(stock):
    # As with Keras's own step, but stock Keras adds the replicas' means up.
    x = np.array([[0.0]] * 6 + [[6.0]])

    def weight(strategy):
        with strategy.scope():
            dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = OwnStep([keras.Input((1,)), dense])
            model.compile(keras.optimizers.SGD(0.1))
        model.fit(x, x, batch_size=4, shuffle=False, verbose=0)
        return float(model.get_weights()[0][0, 0])

    assert on_both(stock, weight) == pytest.approx([0.1 * 72, 0.1 * 72 / 3])


def test_scalars_count_equally_whatever_their_number_of_samples(stock):
    rows = np.array([[0.0]] * 6 + [[3.0]])  # the last batch has three, two of them on replica 0

    def step(model, data):
        mean = keras.ops.mean(data)
        model.means.update_state(mean)
        model.total.update_state(mean)
        return {"mean": mean}

    def found(strategy):
        metrics = {"means": keras.metrics.Mean, "total": keras.metrics.Sum}
        model = with_test_step(strategy, step, **metrics)
        model.evaluate(rows, batch_size=4, verbose=0)
        return [float(metric.result()) for metric in (model.means, model.total)]

    assert on_both(stock, found) == [pytest.approx([3 / 4, 3]), pytest.approx([1 / 2, 1])]


class Batches(keras.metrics.Metric):
    def __init__(self, name="batches"):
        super().__init__(name=name)
        self.count = self.add_weight(initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(1)

    def result(self):
        return self.count


def test_a_metric_counts_a_batch_once_on_every_replica(stock):
    def count(strategy):
        model = linear(strategy, metrics=[Batches()])
        return model.evaluate(ROWS, ROWS, verbose=0, return_dict=True)["batches"]

    assert on_both(stock, count) == [2, 1]


def test_rows_that_all_replicas_have_are_counted_by_each(stock):
    def step(model, data):
        model.total.update_state(kdist.gather(data))
        return {"sum": keras.ops.sum(data)}

    def total(strategy):
        model = with_test_step(strategy, step, total=keras.metrics.Sum)
        model.evaluate(ROWS, verbose=0)
        return float(model.total.result())

    assert on_both(stock, total) == pytest.approx([2 * ROWS.sum(), ROWS.sum()])


def test_a_metrics_result_within_a_step_is_one_replicas(stock):
    """Keras logs the mean over replicas."""

    def step(model, data):
        model.total.update_state(data)
        return {"total": model.total.result()}

    def total(strategy):
        model = with_test_step(strategy, step, total=keras.metrics.Sum)
        return model.evaluate(ROWS, verbose=0, return_dict=True)["total"]

    assert on_both(stock, total) == pytest.approx([ROWS.sum() / 2, ROWS.sum()])


class KeepsItsMean(keras.layers.Layer):
    def build(self, shape):
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.mean.assign(keras.ops.mean(x))
        return x


def test_replicas_write_different_layer_states(stock):
    """No warning tells of it either; pytest makes an error of one."""

    def means(strategy):
        model = of_layer(strategy, KeepsItsMean, loss="mse")
        model.evaluate(ROWS, ROWS, verbose=0)
        return copies(model.layers[0].mean)

    assert on_both(stock, means) == [[1.5, 6], [3.75, 3.75]]


def test_replicas_share_what_layers_add_to_the_loss(stock):
    """`Layer._losses`: thrown away by the next replica, which starts at a collective."""
    with stock.scope():
        inputs = keras.Input((1,))
        x = keras.layers.Dense(1, kernel_initializer="ones", activity_regularizer="l1")(inputs)
        model = keras.Model(inputs, keras.layers.BatchNormalization(synchronized=True)(x))

    def added():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        model(tf.ones((1, 1)) * tf.cast(replica + 1, "float32"), training=True)
        return model.losses[0]

    assert on_replicas(stock, added) == [pytest.approx(0.02)]  # that of the last, for both


def test_a_mask_disables_synchronization(stock):
    with stock.scope():
        layer = keras.layers.BatchNormalization(synchronized=True, momentum=0.0)
        layer.build((None, 1, 1))

    def mean():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        x = tf.cast(tf.fill((2, 1, 1), replica), "float32")
        layer(x, training=True, mask=tf.ones((2, 1), "bool"))
        return layer.moving_mean.value.read_value()

    means = on_replicas(stock, mean)
    assert np.ravel(means) == pytest.approx([0, 1])


def test_a_stateful_layer_crashes(stock):
    with stock.scope():
        model = keras.Sequential(
            [keras.Input((3, 2), batch_size=4), keras.layers.GRU(1, stateful=True)]
        )
        model.compile("sgd", "mse")
    x, y = np.ones((4, 3, 2)), np.ones((4, 1))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.fit(x, y, batch_size=4, verbose=0)


def test_a_scalar_variable_is_no_number(stock):
    with stock.scope():
        variable = keras.Variable(1.0)
    for number in (float, int):
        with pytest.raises(TypeError, match="MirroredVariable"):
            number(variable)


@pytest.mark.parametrize("name", ["gelu", "silu", "hard_silu"])
def test_an_activation_is_several_operations(stock, name):
    def operations(strategy):
        activation = getattr(keras.activations, name)
        step = tf.function(lambda: strategy.run(activation, (tf.zeros((2, 64, 64)),)))
        graph = step.get_concrete_function().graph
        return {operation.type for operation in graph.get_operations()}

    theirs, ours = on_both(stock, operations)
    arithmetic = {"Mul", "Erf", "Sigmoid", "Relu6"}
    assert theirs & arithmetic
    assert not ours & arithmetic


@pytest.mark.parametrize("optional", [False, True])
def test_a_replica_without_sparse_rows_crashes(stock, optional):
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
    assert shapes(kdist.MirroredStrategy(replicas=2)) == [[1, 2]]
