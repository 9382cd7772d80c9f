"""A training that is killed and resumed ends like the one that was not, bit for bit."""

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import Checkpoint, StopAtAccuracy, TrainingTelemetry
from replicas import assert_equal
from resumed_training import (
    BATCH,
    SAMPLES,
    STEPS,
    VALIDATION,
    Kill,
    KilledError,
    Training,
    X,
    Y,
    compiled,
    network,
)

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


def everything():
    return keras.optimizers.SGD(
        0.05, momentum=0.9, nesterov=True, use_ema=True, gradient_accumulation_steps=4
    )


def callbacks():
    return [
        keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("val_accuracy", patience=1, mode="max"),
        StopAtAccuracy(0.99, verbose=0, clock=lambda: 0.0),
    ]


KILLS = [
    2,  # one step was saved
    STEPS - 1,  # the last step of the first epoch
    2,  # the first step of the second
    VALIDATION,
    STEPS + 1,  # the last step of the last epoch
]


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_again_and_again(replicas, tmp_path):
    training = Training(compiled(replicas, everything), make_callbacks=callbacks)
    expected = training.uninterrupted()
    assert training.killed(tmp_path, *KILLS).differences(expected) == []


def test_callbacks_of_kdist_that_measure(tmp_path):
    """Amid an epoch, on as many replicas."""
    training = Training(
        compiled(2),
        make_callbacks=lambda: [TrainingTelemetry(every_steps=2, verbose=0)],
        epochs=2,
    )
    expected = training.uninterrupted()
    assert training.killed(tmp_path, STEPS + 3).differences(expected) == []


def test_several_steps_per_execution(tmp_path):
    """The last execution of an epoch has one step of two."""
    training = Training(compiled(steps_per_execution=5))
    expected = training.uninterrupted()
    assert training.killed(tmp_path, 6, 11, 6).differences(expected) == []


def varying_epochs():
    """Another number of batches in each epoch."""
    tf.random.set_seed(1)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SAMPLES, seed=1).batch(4)
    return (data.filter(lambda x, y: tf.reduce_sum(x) > 0.0),)


def unknown_length():
    return (tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).filter(lambda x, y: True),)


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.parametrize("steps_per_epoch", [None, 4])
@pytest.mark.parametrize("make_data", [varying_epochs, unknown_length])
def test_data_that_end_where_keras_does_not_expect_it(make_data, steps_per_epoch, tmp_path):
    """Later epochs depend on where the earlier epochs' data have ended."""
    training = Training(
        compiled(),
        make_data,
        epochs=5,
        batch_size=None,
        validation_data=None,
        steps_per_epoch=steps_per_epoch,
    )
    expected = training.uninterrupted()
    assert training.killed(tmp_path, 10, 4).differences(expected) == []


OPTIMIZERS = {
    "AdamW": lambda: keras.optimizers.AdamW(0.01, use_ema=True, ema_overwrite_frequency=2),
    "Lion": lambda: keras.optimizers.Lion(
        keras.optimizers.schedules.CosineDecay(0.01, 3 * STEPS), gradient_accumulation_steps=3
    ),
    "LossScaleOptimizer": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True), dynamic_growth_steps=2
    ),
    "MultiOptimizer": lambda: keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(
            keras.optimizers.SGD(0.05, momentum=0.5), {".*kernel": keras.optimizers.Adam(0.01)}
        )
    ),
    "LARS": lambda: kdist.optimizers.LARS(0.5),
    "NovoGrad": lambda: kdist.optimizers.NovoGrad(0.01),
}
NESTED = ["LossScaleOptimizer", "MultiOptimizer"]


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in NESTED])
def test_optimizers(name, tmp_path):
    model = network()
    model.compile(OPTIMIZERS[name](), "sparse_categorical_crossentropy")
    training = Training(model, epochs=2, validation_data=None)
    expected = training.uninterrupted()
    assert training.killed(tmp_path, 4, 4).differences(expected) == []


@pytest.mark.parametrize("in_list", [False, True])
def test_a_fresh_process_builds_the_optimizers_that_build_themselves(in_list, tmp_path):
    """As a model with steps of its own has, whose second optimizer Keras does not know."""

    class Both(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self(x)))
            first, *rest = self.trainable_variables
            gradients = tape.gradient(loss, [first, *rest])
            second = self.second[0] if in_list else self.second
            second.apply(gradients[:1], [first])
            self.optimizer.apply(gradients[1:], rest)
            return {"own": loss}

    def training():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((8,))
        model = Both(inputs, keras.layers.Dense(3, activation="softmax")(inputs))
        second = keras.optimizers.Adam(0.1)
        model.second = [second] if in_list else second
        model.compile(keras.optimizers.Adam(0.01))
        return Training(model, epochs=2, validation_data=None)

    expected = training().fit()
    with pytest.raises(KilledError):
        training().fit(Kill(STEPS + 3), Checkpoint(tmp_path, every_steps=1, verbose=0))
    assert training().resumed(tmp_path).differences(expected) == []


@pytest.mark.parametrize("name", NESTED)
def test_a_fresh_process_builds_optimizers_in_others(name, tmp_path):
    """The first step names their variables otherwise than `build`."""

    def training():
        keras.utils.set_random_seed(0)
        model = network()
        model.compile(OPTIMIZERS[name](), "sparse_categorical_crossentropy")
        return Training(model, epochs=1, validation_data=None)

    expected = training().fit()
    with pytest.raises(KilledError):
        training().fit(Kill(3), Checkpoint(tmp_path, every_steps=1, verbose=0))
    assert training().resumed(tmp_path).differences(expected) == []


@pytest.mark.parametrize("has_input", [True, False])
def test_a_fresh_process_builds_what_keras_leaves_to_the_first_step(has_input, tmp_path):
    """Without a strategy: metrics, and the layers of a model that does not know its input."""

    def training():
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Dense(4), keras.layers.Dense(3, activation="softmax")]
        model = keras.Sequential(([keras.Input((8,))] if has_input else []) + layers)
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
        return Training(model, epochs=1)

    expected = training().fit()
    with pytest.raises(KilledError):
        training().fit(Kill(3), Checkpoint(tmp_path, every_steps=1, verbose=0))
    assert training().resumed(tmp_path).differences(expected) == []


class Shuffled(keras.utils.PyDataset):
    """Another order in each epoch."""

    def __init__(self):
        super().__init__()
        self._draws = np.random.default_rng(2)
        self.on_epoch_end()

    def on_epoch_end(self):
        self._order = self._draws.permutation(SAMPLES)

    @property
    def num_batches(self):
        return STEPS

    def __getitem__(self, index):
        rows = self._order[index * BATCH : (index + 1) * BATCH]
        return X[rows], Y[rows]


def shuffled_dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SAMPLES, seed=4).batch(BATCH)


@pytest.mark.parametrize(("make_data", "stops"), [(shuffled_dataset, True), (Shuffled, False)])
def test_a_second_fit_of_a_script_is_resumed_on_the_same_data(make_data, stops, tmp_path):
    """Its first fit is over, and has read of them before."""

    class StopAfterFirst(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

        def get_state(self):
            return {}

        def set_state(self, state):
            pass

    model = compiled()

    def script(folder, *more):
        data, training = make_data(), Training(model)
        training.reset()
        first = [StopAfterFirst()] if stops else []
        for name, others in (("first", first), ("second", more)):
            checkpoint = Checkpoint(folder / name, every_steps=1, verbose=0)
            callbacks = [*others, checkpoint]
            model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
        return model.get_weights()

    expected = script(tmp_path / "whole")
    with pytest.raises(KilledError):
        script(tmp_path / "parts", Kill(STEPS + 2))
    found = script(tmp_path / "parts")
    assert_equal(found, expected)


class Largest(keras.metrics.Metric):
    """No sum."""

    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(shape=(), initializer=lambda *_, **__: -np.inf, name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self):
        return self.value + 0.0

    def reset_state(self):
        self.value.assign(-np.inf)


def adam():
    return keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)


def training(replicas):
    keras.utils.set_random_seed(0)
    return Training(compiled(replicas, adam, metrics=["accuracy", Largest]))


@pytest.mark.slow
def test_one_two_four_three_and_one_replicas(tmp_path):
    """Amid epochs and between them, with dropout, averages and accumulation."""
    expected = training(1).uninterrupted()
    for replicas, steps in [(1, 3), (2, STEPS - 1), (4, 4), (3, 3)]:
        with pytest.raises(KilledError):
            training(replicas).fit(Kill(steps), Checkpoint(tmp_path, every_steps=1, verbose=0))
    found = training(1).resumed(tmp_path)
    for name, value in expected.values.items():
        np.testing.assert_allclose(found.values[name], value, rtol=0, atol=1e-6, err_msg=name)
    for name, value in expected.history.items():
        np.testing.assert_allclose(found.history[name], value, rtol=1e-5, err_msg=name)


def loss_of_pairs(y, predicted):
    """Read the size of the batch."""
    pairs = tf.reshape(predicted, (predicted.shape[0] // 2, 2, 4))
    return tf.reduce_mean(tf.square(pairs[:, 0] - pairs[:, 1]))


def loss_of_values(y, predicted):
    """Read values, as a debugger does."""
    return tf.reduce_mean(tf.square(y - predicted)) * float(predicted.numpy().shape[0])


@pytest.mark.parametrize(("loss", "eager"), [(loss_of_pairs, False), (loss_of_values, True)])
def test_code_that_cannot_be_built_without_data(tmp_path, loss, eager):
    rows = np.linspace(-1, 1, 96, dtype="float32").reshape(16, 6)
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :4])).batch(8, drop_remainder=True)
    strategy = kdist.MirroredStrategy(replicas=2)

    def trained(epochs, folder):
        keras.utils.set_random_seed(0)
        model = strategy.build(lambda: keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)]))
        model.compile("adam", loss, metrics=[loss], run_eagerly=eager)
        callbacks = [Checkpoint(folder, verbose=0)]
        model.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
        return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]

    trained(1, tmp_path / "resumed")
    assert_equal(trained(2, tmp_path / "resumed"), trained(2, tmp_path / "whole"))
