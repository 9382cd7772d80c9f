"""Data, iterators and compilation around a step in stock Keras."""

import itertools

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.epoch_iterator import EpochIterator
from stock_models import linear, of_layer


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


def test_keras_reads_the_values_of_every_execution_in_any_case():
    """So that a callback which looks at them costs no wait: `StopAtNonFinite`."""
    assert not keras.callbacks.CallbackList([])._async_train


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


def test_keras_forgets_what_was_automatic(stock):
    """A model saved on one GPU would have XLA on others."""
    assert linear(stock)._compile_config.config["jit_compile"] is False


def test_a_decorated_step_does_not_say_its_model(stock, monkeypatch):
    """`TensorFlowTrainer._make_function` passes the step alone to `strategy.run`."""
    passed, run = [], stock.run

    class Decorated(keras.Sequential):
        @tf.function
        def train_step(self, data):
            return keras.Sequential.train_step(self, data)

    def record(fn, *args, **options):
        passed.append(fn)
        return run(fn, *args, **options)

    monkeypatch.setattr(stock, "run", record)
    with stock.scope():
        model = Decorated([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    assert passed
    assert not any(hasattr(fn, "__self__") or hasattr(fn, "model") for fn in passed)


def test_a_loss_outside_of_a_step_is_divided_by_the_replicas(stock):
    with stock.scope():
        assert float(keras.losses.MeanSquaredError()(np.ones((4, 1)), np.zeros((4, 1)))) == 0.5


def test_a_first_batch_that_does_not_divide_crashes(stock):
    """The mean over replicas that is taken to learn a batch's shape: `MirroredStrategy.reduce`."""
    model = linear(stock)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        model.fit(np.ones((9, 1)), np.ones((9, 1)), batch_size=3, verbose=0)


def test_predict_on_batch_predicts_every_sample_once_a_replica(stock):
    """Stock Keras gives an undivided batch whole to each replica."""
    assert len(linear(stock).predict_on_batch(np.ones((4, 1)))) == 8
    strategy = kdist.MirroredStrategy(replicas=2)
    assert len(linear(strategy).predict_on_batch(np.ones((4, 1)))) == 4


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


@pytest.mark.filterwarnings("ignore:.*ran out of data")
def test_data_that_end_limit_the_later_epochs():
    """`EpochIterator.catch_stop_iteration`: the length of the first epoch is a later one's most."""
    model, steps = linear(tf.distribute.get_strategy()), []
    lengths = itertools.cycle([2, 4])

    def rows():
        yield from itertools.repeat((np.ones((2, 1)), np.ones((2, 1))), next(lengths))

    spec = tf.TensorSpec((2, 1), tf.float64)
    data = tf.data.Dataset.from_generator(rows, output_signature=(spec, spec))
    count = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: steps.append(0),
        on_train_batch_end=lambda *_, **__: steps.append(1),
    )
    model.fit(data, epochs=2, shuffle=False, verbose=0, callbacks=[count])
    assert steps == [1, 1, 0, 1, 1, 1, 0]  # the end itself counts


def test_the_order_of_seeded_data_depends_on_the_iterators_made():
    """No epoch is named to data, which count the iterators made of them."""
    orders = []
    for idle in (0, 1):
        data = tf.data.Dataset.range(100).shuffle(100, seed=1)
        for _ in range(idle):
            iter(data)
        orders.append(list(data.as_numpy_iterator()))
    assert orders[0] != orders[1]


def test_the_iterator_over_the_training_data_is_out_of_reach():
    """A callback cannot say where an epoch begins."""
    reached = []

    class Looks(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            kept = [*vars(self.model).values(), *self.params.values()]
            reached.extend(one for one in kept if isinstance(one, EpochIterator))

    model = linear(tf.distribute.get_strategy())
    x = np.ones((4, 1))
    model.fit(x, x, verbose=0, callbacks=[Looks()])
    assert not reached


class Counter(keras.layers.Layer):
    """Counts its calls as it is traced, and as it runs."""

    def build(self, shape):
        self.traced = 0
        self.runs = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.traced += 1
        self.runs.assign_add(1)
        return x


def counted(steps_per_execution):
    return of_layer(
        tf.distribute.get_strategy(), Counter, loss="mse", steps_per_execution=steps_per_execution
    )


def test_several_steps_per_execution_evaluate_more_than_requested():
    model = counted(steps_per_execution=2)
    endless = tf.data.Dataset.from_tensors((np.ones((2, 1)), np.ones((2, 1)))).repeat()
    model.evaluate(endless, steps=3, verbose=0)
    assert float(model.layers[0].runs.numpy()) == 4


def test_several_steps_per_execution_copy_the_model_for_prediction():
    traced = []
    for steps in (1, 3):
        model = counted(steps)
        before = model.layers[0].traced
        model.predict(np.ones((6, 1)), batch_size=1, verbose=0)
        traced.append(model.layers[0].traced - before)
    assert traced == [1, 3]
