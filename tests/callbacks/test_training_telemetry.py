import json

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import TrainingTelemetry
from kdist.errors import UserError

BATCH, RATE, CLIP = 8, 0.1, 0.05
NAMES = ["hidden/kernel", "hidden/bias", "last/kernel", "last/bias"]


def compiled(make, replicas, optimizer=None, **options):
    """A model on so many replicas, or without a strategy for `None`."""
    strategy = tf.distribute.get_strategy()
    if replicas is None:
        model = make()
    else:
        strategy = kdist.MirroredStrategy(replicas=replicas)
        model = strategy.build(make)
    with strategy.scope():
        model.compile(optimizer or keras.optimizers.SGD(RATE), "mse", **options)
    return model


def measured(model, x, y, epochs=1, every_steps=1):
    """Fit, and return every measurement by its step, and the callback."""
    found = {}
    telemetry = TrainingTelemetry(every_steps=every_steps, verbose=0)
    telemetry.listen(lambda measurement: found.update({measurement.step: measurement}))
    model.fit(
        x, y, batch_size=BATCH, epochs=epochs, verbose=0, shuffle=False, callbacks=[telemetry]
    )
    return found, telemetry


def two_layers():
    inputs = keras.Input((5,))
    x = keras.layers.Dense(7, activation="relu", name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(2, name="last")(x))


def in_numpy(weights, x, y):
    """A step of SGD with clipped gradients, by hand: gradients and next weights."""
    a, b, c, d = weights
    hidden = np.maximum(x @ a + b, 0)
    last = hidden @ c + d
    slope = 2 * (last - y) / last.size
    back = (slope @ c.T) * (hidden > 0)
    gradients = [x.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]
    clipped = [g * min(1, CLIP / np.linalg.norm(g)) for g in gradients]
    return gradients, [w - RATE * g for w, g in zip(weights, clipped, strict=True)]


def norm(arrays):
    return np.sqrt(sum(np.sum(np.square(array)) for array in arrays))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("replicas", [None, 3])
def test_against_numpy_with_uneven_batches(replicas):
    """17 samples: two of three replicas have no part of the last batch."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(17, 5)), random.normal(size=(17, 2))
    model = compiled(two_layers, replicas, keras.optimizers.SGD(RATE, clipnorm=CLIP))
    weights = [np.array(weight) for weight in model.get_weights()]
    found, telemetry = measured(model, x, y)
    assert list(found) == [1, 2, 3]
    for step, measurement in found.items():
        rows = slice((step - 1) * BATCH, step * BATCH)
        gradients, weights = in_numpy(weights, x[rows], y[rows])
        assert list(measurement.weights) == list(measurement.gradients) == NAMES
        for name, weight, gradient in zip(NAMES, weights, gradients, strict=True):
            np.testing.assert_allclose(measurement.weights[name], weight, rtol=1e-12)
            np.testing.assert_allclose(measurement.gradients[name], gradient, rtol=1e-12)
        assert measurement.gradient_norm == pytest.approx(norm(gradients))
        assert measurement.weight_norm == pytest.approx(norm(weights))
    assert telemetry.measurement is found[3]


def branching():
    """An embedding, a layer that is called twice, a nested model, an RNN."""
    words = keras.Input((3,), dtype="int32")
    shared = keras.layers.Dense(4, activation="relu", name="shared")
    twice = shared(shared(keras.layers.Embedding(6, 4, name="words")(words)))
    inner_in = keras.Input((3, 4))
    inner_out = keras.layers.Dense(4, activation="tanh", name="inner")(inner_in)
    nested = keras.Model(inner_in, inner_out, name="nested")
    x = keras.layers.SimpleRNN(3, name="rnn")(nested(twice))
    return keras.Model(words, keras.layers.Dense(2, name="last")(x))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("replicas", "steps_per_execution", "accumulated"), [(1, 1, 2), (2, 3, None)]
)
def test_layers_called_twice_nested_and_sparse(replicas, steps_per_execution, accumulated):
    """Against the gradient tape on one copy of the model, without a strategy."""
    random = np.random.default_rng(1)
    x, y = random.integers(0, 3, (16, 3)), random.normal(size=(16, 2))
    model = compiled(
        branching,
        replicas,
        keras.optimizers.Adam(0.01, gradient_accumulation_steps=accumulated),
        steps_per_execution=steps_per_execution,
    )
    before = model.get_weights()
    found, _ = measured(model, x, y, every_steps=2)
    # An execution is measured at its last step.
    assert list(found) == ([1, 2] if steps_per_execution == 1 else [2])
    plain = branching()
    plain.set_weights(before)
    if not accumulated:
        plain.compile(keras.optimizers.Adam(0.01), "mse")
        plain.fit(x[:8], y[:8], batch_size=8, shuffle=False, verbose=0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(plain(x[8:]) - y[8:]))
    gradients = tape.gradient(loss, plain.trainable_weights)
    pairs = zip(found[2].gradients.items(), plain.trainable_weights, gradients, strict=True)
    for (name, value), weight, gradient in pairs:
        assert name.split("/")[-2:] == weight.path.split("/")[-2:]
        dense = tf.convert_to_tensor(gradient)  # of an embedding, the sum of its slices
        np.testing.assert_allclose(value, dense, rtol=1e-7, atol=1e-12)


class OwnStep(keras.Model):
    """Clips the gradients of the global batch before the optimizer gets them."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 1e-3)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def own_step():
    model = two_layers()
    return OwnStep(model.inputs, model.outputs)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("replicas", "options"),
    [
        (2, {}),
        (2, {"run_eagerly": True}),
        (2, {"jit_compile": True}),
        (None, {"jit_compile": True}),
    ],
)
def test_a_train_step_of_its_own_eager_and_compiled(replicas, options):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(7, 5)), random.normal(size=(7, 2))
    model = compiled(own_step, replicas, **options)
    gradients, _ = in_numpy([np.array(weight) for weight in model.get_weights()], x, y)
    (measurement,) = measured(model, x, y)[0].values()
    assert measurement.gradient_norm == pytest.approx(1e-3)
    share = 1e-3 / norm(gradients)
    for value, gradient in zip(measurement.gradients.values(), gradients, strict=True):
        np.testing.assert_allclose(value, share * gradient, rtol=1e-6)


def test_gradients_are_without_the_loss_scale():
    """In float16, where the loss is scaled by 2**15."""
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(8, n)).astype("float32") for n in (5, 2))
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = compiled(two_layers, 2)
    finally:
        keras.config.set_dtype_policy("float32")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    weights = [np.float64(weight) for weight in model.get_weights()]
    gradients, _ = in_numpy(weights, np.float64(x), np.float64(y))
    (measurement,) = measured(model, x, y)[0].values()
    assert measurement.gradient_norm == pytest.approx(norm(gradients), rel=1e-2)


def with_everything():
    inputs = keras.Input((5,))
    x = keras.layers.Dense(7, activation="relu")(inputs)
    x = keras.layers.Dropout(0.3, name="noise")(keras.layers.BatchNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def test_the_training_is_as_without_it():
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(20, n)).astype("float32") for n in (5, 2))

    def weights(callbacks):
        keras.utils.set_random_seed(1)
        model = compiled(with_everything, 2)
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)
        assert "apply" not in vars(model.optimizer)
        return model.get_weights()

    watched = weights([TrainingTelemetry(every_steps=2, verbose=0)])
    for array, expected in zip(watched, weights([]), strict=True):
        np.testing.assert_array_equal(array, expected)


def test_steps_continue_in_a_run_that_is_resumed():
    x, y = np.ones((40, 5), "float32"), np.zeros((40, 2), "float32")
    model = compiled(two_layers, 1)
    found, telemetry = measured(model, x, y, every_steps=3)
    assert list(found) == [1, 3]
    resumed = TrainingTelemetry(every_steps=3, verbose=0)
    resumed.set_state(telemetry.get_state())
    resumed.listen(lambda measurement: found.update({measurement.step: measurement}))
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[resumed])
    assert list(found) == [1, 3, 6, 9, 12, 15]
    assert history.history["gradient_norm"][-1] == found[15].gradient_norm


def test_a_resumed_epoch_without_a_measurement_logs_the_last_one(capsys):
    """As the epoch does that was not interrupted, also where it was measured before that."""
    x, y = np.ones((40, 5), "float32"), np.zeros((40, 2), "float32")
    model = compiled(two_layers, 1)
    first, resumed = TrainingTelemetry(every_steps=4), TrainingTelemetry(every_steps=4)
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[first])
    resumed.set_state(json.loads(json.dumps(first.get_state())))
    logs = model.fit(x[:16], y[:16], batch_size=BATCH, verbose=0, callbacks=[resumed]).history
    assert resumed.measurement is None
    assert logs["gradient_norm"] == [first.measurement.gradient_norm]
    assert logs["weight_norm"] == [first.measurement.weight_norm]
    line = f"Telemetry: step 4: gradient norm {first.measurement.gradient_norm:.3g}"
    assert capsys.readouterr().out.count(line) == 2


def test_weights_of_one_name_are_told_apart():
    class Twins(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [keras.layers.Dense(2, name="twin") for _ in range(2)]

        def call(self, inputs):
            return self.parts[1](self.parts[0](inputs))

    model = Twins()
    model(np.ones((4, 2)))
    model.compile("sgd", "mse")
    found, _ = measured(model, np.ones((4, 2)), np.ones((4, 2)))
    assert len(found[1].weights) == 4


def test_models_that_cannot_be_measured():
    with pytest.raises(UserError, match="every_steps is 0"):
        TrainingTelemetry(every_steps=0)
    data = np.ones((2, 5)), np.ones((2, 2))
    frozen = compiled(two_layers, 1)
    frozen.trainable = False
    with pytest.raises(UserError, match="no trainable weights"):
        frozen.fit(*data, verbose=0, callbacks=[TrainingTelemetry()])
    kdist.MirroredStrategy(replicas=2)  # splits the CPU
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        other = two_layers()
        other.compile("sgd", "mse")
    with pytest.raises(
        UserError, match="the 2 replicas of MirroredStrategy have different gradients"
    ):
        other.fit(*data, verbose=0, callbacks=[TrainingTelemetry()])
