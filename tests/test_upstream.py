"""Canaries: each fails on the day upstream no longer needs what `kdist/_upstream` does for it.

Every one shows the stock behaviour that is worked around, with the upstream version it was last
seen in (Keras 3.15.1, TensorFlow 2.21.0). When one fails, delete the workaround and the canary.
"""

import itertools

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist import _upstream


@pytest.fixture
def stock(iterators_let_go_aside):
    devices = ["/cpu:0", "/cpu:1"]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def linear(strategy, optimizer=None, loss="mse", **compile_options):
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")]
        )
        model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **compile_options)
    return model


def on_replicas(strategy, fn):
    results = tf.function(lambda: strategy.run(fn), autograph=False)()
    return [value.numpy() for value in strategy.experimental_local_results(results)]


def test_losses_are_divided_by_replicas_rounded_to_float32(stock):
    """`scale_loss_for_distribution`: 1/R, whatever the parts' sizes; no upstream issue."""
    loss = keras.losses.MeanSquaredError(dtype="float64")
    three = tf.distribute.MirroredStrategy(
        [f"/cpu:{i}" for i in range(3)], tf.distribute.ReductionToOneDevice()
    )
    parts = on_replicas(three, lambda: loss(np.ones((2, 1)), np.zeros((2, 1))))
    assert sum(parts) != 1
    assert sum(parts) == pytest.approx(1, abs=1e-7)


def test_uneven_batches_are_weighted_evenly(stock):
    # The last batch has three samples, two of them on replica 0: the slope's gradient is
    # -2 * 6 * 6 / 3, but stock Keras takes the mean of 0 and -2 * 6 * 6.
    x = np.array([[0.0]] * 6 + [[6.0]])
    weights = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2)):
        model = linear(strategy)
        model.fit(x, x, batch_size=4, shuffle=False, verbose=0)
        weights.append(float(model.get_weights()[0][0, 0]))
    assert weights == pytest.approx([0.1 * 72 / 2, 0.1 * 72 / 3])


def test_gradients_are_clipped_before_they_are_summed(stock):
    # The replicas' gradients point apart and are both clipped; their sum would be clipped to 1.
    x, y = np.ones((4, 1)), np.array([[300.0], [300.0], [-100.0], [-100.0]])
    weights = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2)):
        with strategy.scope():
            optimizer = keras.optimizers.SGD(1.0, clipvalue=1.0)
        model = linear(strategy, optimizer)
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        weights.append(float(model.get_weights()[0][0, 0]))
    assert weights == pytest.approx([0, 1])


@pytest.mark.parametrize(
    "options", [{"gradient_accumulation_steps": 2}, {"use_ema": True, "ema_overwrite_frequency": 2}]
)
def test_the_optimizer_crashes_on_conditions(stock, options):
    model = linear(stock, keras.optimizers.SGD(0.1, **options))
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        model.fit(np.ones((8, 1)), np.ones((8, 1)), batch_size=4, verbose=0)


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


def test_a_mask_undoes_synchronization(stock):
    """`BatchNormalization._moments`: a replica's own where there is a mask."""
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


def test_losses_and_metrics_of_a_whole_batch_are_taken_for_means(stock):
    """`Loss.__call__`, `Mean.update_state`: the parts' values averaged, each counting alike."""
    x = np.array([[1.0], [2.0], [3.0], [9.0]])
    model = linear(stock, metrics=[lambda y, p: keras.ops.max(y)], loss="mse")
    assert model.evaluate(x, x, verbose=0)[1] == pytest.approx((2 + 9) / 2)


def test_a_generator_loses_batches_to_a_throw_away_iterator(stock):
    """`_maybe_symbolic_build`: its read-ahead is gone."""
    seen = []

    class Seen(keras.layers.Layer):
        def call(self, x):
            tf.py_function(lambda part: seen.append(float(part[0, 0])), [x], [])
            return x

    with stock.scope():
        model = keras.Sequential([keras.Input((1,)), Seen(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    ones = np.ones((2, 1))
    batches = ((ones * i, ones) for i in itertools.count())
    model.fit(batches, steps_per_epoch=4, shuffle=False, verbose=0)
    assert sorted({*seen}) != [0, 1, 2, 3]


def test_seeds_are_the_same_on_every_replica(stock):
    with stock.scope():
        generator = keras.random.SeedGenerator(1)
    one, other = on_replicas(stock, lambda: generator.next())
    np.testing.assert_array_equal(one, other)
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        generator = keras.random.SeedGenerator(1)
    one, other = on_replicas(strategy, lambda: generator.next())
    assert one[0] != other[0]


class Noise(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.seed)


def test_replicas_draw_the_same_for_different_samples(stock):
    """`MirroredStrategy` seeds all replicas alike: sample 2 is given what sample 0 was given."""
    noises = []
    for strategy in (stock, kdist.MirroredStrategy(replicas=2), tf.distribute.get_strategy()):
        with strategy.scope():
            model = keras.Sequential([keras.Input((3,)), Noise()])
        noises.append(model.predict(np.zeros((4, 3)), verbose=0))
    doubled, got, expected = noises
    np.testing.assert_array_equal(doubled, np.tile(expected[:2], (2, 1)))
    np.testing.assert_array_equal(got, expected)


KEY, COUNTER = tf.constant([7], "uint64"), [3, 0]


@pytest.mark.parametrize(
    ("draw", "counts_a_value"),
    [
        (tf.raw_ops.StatelessRandomUniformV2, 1 / 4),
        (tf.raw_ops.StatelessRandomNormalV2, 1 / 4),
        (tf.raw_ops.StatelessTruncatedNormalV2, 64),
    ],
)
def test_numbers_are_drawn_from_a_counter(draw, counts_a_value):
    """What `draws` relies on, not what it mends: so many counts on come the later numbers."""

    def drawn(first, count):
        skipped = [COUNTER[0] + int(first * counts_a_value), COUNTER[1]]
        counter = tf.constant(skipped, "uint64")
        return draw(shape=[count], key=KEY, counter=counter, alg=1, dtype="float32").numpy()

    whole = drawn(0, 1000)
    for first in (4, 8, 256, 640):
        np.testing.assert_array_equal(drawn(first, 1000 - first), whole[first:])


def test_a_model_compiled_outside_the_scope_crashes(stock):
    with stock.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    with pytest.raises(RuntimeError, match=r"Mixing different tf\.distribute\.Strategy"):
        model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)


def test_keras_leaves_xla_off_under_a_strategy_of_one_gpu(monkeypatch):
    """`Trainer._resolve_auto_jit_compile`: on without a strategy, off under any."""
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: [gpu])
    assert linear(tf.distribute.get_strategy()).jit_compile
    assert not linear(tf.distribute.MirroredStrategy(["/cpu:0"])).jit_compile


def test_a_first_batch_that_does_not_divide_crashes(stock):
    """The mean over replicas that is taken to learn a batch's shape: `MirroredStrategy.reduce`."""
    model = linear(stock)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        model.fit(np.ones((9, 1)), np.ones((9, 1)), batch_size=3, verbose=0)


def test_predict_on_batch_predicts_every_sample_once_a_replica(stock):
    """A batch that came undivided is given whole to each replica: `exact_step.replica_rows`."""
    assert len(linear(stock).predict_on_batch(np.ones((4, 1)))) == 8
    strategy = kdist.MirroredStrategy(replicas=2)
    assert len(linear(strategy).predict_on_batch(np.ones((4, 1)))) == 4


def test_a_built_layer_refuses_a_sublayer_in_the_place_of_its_own():
    class Owner(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(1)
            self.listed = [keras.layers.Dense(2)]

        def call(self, x):
            return self.listed[0](self.inner(x))

    owner = Owner()
    owner(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="cannot add"):
        owner.inner = keras.layers.Dense(1)
    new = {id(owner.inner): keras.layers.ReLU(), id(owner.listed[0]): keras.layers.Flatten()}
    _upstream.replace_sublayers(owner, lambda layer: new.get(id(layer), layer))
    assert isinstance(owner.inner, keras.layers.ReLU)
    assert [type(layer).__name__ for layer in _upstream.flatten_layers(owner)] == [
        "ReLU",
        "Flatten",
    ]


def test_keras_hands_its_own_steps_to_run(monkeypatch):
    strategy = kdist.MirroredStrategy(replicas=2)
    model = linear(strategy)
    assert _upstream.stock_step(model.train_step) == (model, "train_step")
    assert _upstream.stock_step(model.test_step) == (model, "test_step")
    assert _upstream.stock_step(model.predict_step) is None
    steps, run = [], strategy.run

    def seen(fn, *args, **options):
        steps.append(_upstream.stock_step(fn))
        return run(fn, *args, **options)

    monkeypatch.setattr(strategy, "run", seen)
    model.predict(np.ones((2, 1)), verbose=0)
    assert {*steps} == {(model, "predict_step")}


def test_collectives_fail_in_a_second_strategy():
    """Why logical CPUs reduce to one device; TensorFlow's default there is collectives."""
    devices = ["/cpu:0", "/cpu:1"]
    defaults = tf.distribute.MirroredStrategy(devices)
    assert not isinstance(defaults.extended._cross_device_ops, tf.distribute.ReductionToOneDevice)


def test_an_unknown_keras_is_warned_of_and_the_known_one_is_not():
    with pytest.warns(UserWarning, match=r"tested with Keras 3\.15, not with 3\.99\.0"):
        _upstream.warn_of_unknown_keras("3.99.0")
    _upstream.warn_of_unknown_keras(keras.__version__)


def test_replaced_functions_keep_their_names_and_are_replaced_once_by_each():
    class Owner:
        def method(self):
            return 1

    def doubled(original, owner):
        return 2 * original(owner)

    def less(original, owner):
        return original(owner) - 1

    for replacement in (doubled, doubled, less):
        _upstream.replacing.replace(Owner, "method")(replacement)
    assert Owner().method() == 1
    assert Owner.method.__name__ == "method"


@pytest.mark.parametrize(("strategy_of", "iterators"), [("stock", 2 * 2 + 1), ("kdist", 2)])
def test_an_epoch_ends_with_a_spare_iterator(stock, strategy_of, iterators, monkeypatch):
    """`EpochIterator._enumerate_iterator` makes two, and uses one; one more is peeked at."""
    made = []
    strategy = stock if strategy_of == "stock" else kdist.MirroredStrategy(replicas=2)
    model = linear(strategy)
    kind = type(strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2)))
    original = kind.__iter__
    monkeypatch.setattr(kind, "__iter__", lambda data: made.append(data) or original(data))
    x = np.ones((6, 1))
    model.fit(x, x, batch_size=2, verbose=0)
    made.clear()
    history = model.fit(x, x, batch_size=2, epochs=2, verbose=0).history
    assert len(history["loss"]) == 2
    assert len(made) == iterators
