import json

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import GradientNoiseScale, TrainingTelemetry
from kdist.errors import UserError
from kdist.layers.histogram import EDGES

BATCH, RATE, CLIP = 8, 0.1, 0.05


def compiled(make, replicas, optimizer=None, loss="mse", **options):
    strategy = kdist.MirroredStrategy(replicas=replicas)
    model = strategy.build(make)
    with strategy.scope():
        model.compile(optimizer or keras.optimizers.SGD(RATE), loss, **options)
    return model


def measured(model, x, y, epochs=1, every_steps=1):
    """Fit, and return every measurement by its step, and the callback."""
    found = {}
    telemetry = TrainingTelemetry(every_steps=every_steps, verbose=0)
    telemetry.listen(lambda one: found.update({one.step: one}))
    model.fit(
        x, y, batch_size=BATCH, epochs=epochs, verbose=0, shuffle=False, callbacks=[telemetry]
    )
    return found, telemetry


def assert_counts(histogram, *values):
    """The counts of NumPy, bin by bin."""
    wide = np.concatenate([np.float64(one).ravel() for one in values])
    positive = EDGES[len(EDGES) // 2 :]
    above, below = (np.histogram(one[one > 0], positive)[0] for one in (wide, -wide))
    zeros = [np.sum(wide == 0)]
    np.testing.assert_array_equal(histogram.counts, np.concatenate([below[::-1], zeros, above]))
    assert histogram.zero_fraction == pytest.approx(np.mean(wide == 0))


def two_layers():
    inputs = keras.Input((5,))
    x = keras.layers.Dense(7, activation="relu", name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(2, name="last")(x))


def in_numpy(weights, x, y):
    """A step of SGD with clipped gradients, by hand: weights, gradients, outputs, next weights."""
    a, b, c, d = weights
    hidden = np.maximum(x @ a + b, 0)
    last = hidden @ c + d
    slope = 2 * (last - y) / last.size
    back = (slope @ c.T) * (hidden > 0)
    gradients = [x.T @ back, back.sum(0), hidden.T @ slope, slope.sum(0)]
    clipped = [g * min(1, CLIP / np.linalg.norm(g)) for g in gradients]
    return gradients, (hidden, last), [w - RATE * g for w, g in zip(weights, clipped, strict=True)]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_against_numpy_with_uneven_batches(replicas):
    """17 samples: two of three replicas have no part of the last batch."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(17, 5)), random.normal(size=(17, 2))
    model = compiled(two_layers, replicas, keras.optimizers.SGD(RATE, clipnorm=CLIP))
    weights = [np.array(weight) for weight in model.get_weights()]
    found, _ = measured(model, x, y)
    assert list(found) == [1, 2, 3]
    for step, one in found.items():
        rows = slice((step - 1) * BATCH, step * BATCH)
        gradients, outputs, after = in_numpy(weights, x[rows], y[rows])
        names = ["hidden/kernel", "hidden/bias", "last/kernel", "last/bias"]
        assert (list(one.weights), list(one.gradients)) == (names, names)
        for name, weight, gradient in zip(names, weights, gradients, strict=True):
            assert_counts(one.weights[name], weight)
            assert_counts(one.gradients[name], gradient)
        assert list(one.outputs) == ["hidden", "last"]
        for histogram, values in zip(one.outputs.values(), outputs, strict=True):
            assert_counts(histogram, values)
        assert list(one.layers) == ["hidden", "last"]
        both = (one.layers["hidden"], slice(0, 2)), (one.layers["last"], slice(2, 4))
        for norms, own in (*both, (one.total, slice(None))):
            assert norms.weight_norm == pytest.approx(norm(weights[own]))
            assert norms.gradient_norm == pytest.approx(norm(gradients[own]))
            update = norm(
                np.subtract(new, old) for new, old in zip(after[own], weights[own], strict=True)
            )
            assert norms.update_norm == pytest.approx(update)
            assert norms.update_ratio == pytest.approx(update / norm(weights[own]))
        weights = after
    np.testing.assert_allclose(weights[0], model.get_weights()[0])


def norm(arrays):
    return np.sqrt(sum(np.sum(np.square(one)) for one in arrays))


def branching():
    """An embedding, a layer that is called twice, a nested model, an RNN."""
    words = keras.Input((3,), dtype="int32")
    embedded = keras.layers.Embedding(6, 4, name="words")(words)
    shared = keras.layers.Dense(4, activation="relu", name="shared")
    once = shared(embedded)
    twice = shared(once)
    inner_in = keras.Input((3, 4))
    inner_out = keras.layers.Dense(4, activation="tanh", name="inner")(inner_in)
    nested = keras.Model(inner_in, inner_out, name="nested")
    x = keras.layers.SimpleRNN(3, name="rnn")(nested(twice))
    outputs = keras.layers.Dense(2, name="last")(x)
    model = keras.Model(words, outputs)
    model.probe = {"words": [embedded], "shared": [once, twice], "rnn": [x], "last": [outputs]}
    return model


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
    found, _ = measured(model, x, y, every_steps=2, epochs=1)
    assert list(found) == [2]  # an execution's last, and the first with accumulated gradients
    plain = branching()
    plain.set_weights(before)
    if not accumulated:
        plain.compile(keras.optimizers.Adam(0.01), "mse")
        plain.fit(x[:8], y[:8], batch_size=8, shuffle=False, verbose=0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(plain(x[8:]) - y[8:]))
    gradients = tape.gradient(loss, plain.trainable_weights)
    (one,) = found.values()
    by_layer, by_weight = {}, {}
    for weight, gradient in zip(plain.trainable_weights, gradients, strict=True):
        dense = tf.convert_to_tensor(gradient).numpy()  # of an embedding, the sum of its slices
        name = "/".join(weight.path.split("/")[-2:])
        by_weight[name] = dense
        by_layer.setdefault(name.split("/")[0], []).append(dense)
    assert {"/".join(name.split("/")[-2:]) for name in one.gradients} == set(by_weight)
    for name, histogram in one.gradients.items():
        assert_counts(histogram, by_weight["/".join(name.split("/")[-2:])])
    assert {name.split("/")[-1]: norms.gradient_norm for name, norms in one.layers.items()} == {
        name: pytest.approx(norm(parts), rel=1e-9) for name, parts in by_layer.items()
    }
    tensors = keras.Model(plain.input, plain.probe)(x[8:])
    for name, values in tensors.items():
        assert_counts(one.outputs[name], *values)


class OwnStep(keras.Model):
    """Clips the gradients of the global batch before the optimizer gets them."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        if self.clips:
            gradients, _ = tf.clip_by_global_norm(gradients, 1e-3)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def own_step(clips):
    def make():
        model = two_layers()
        model = OwnStep(model.inputs, model.outputs)
        model.clips = clips
        return model

    return make


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("replicas", "clips"), [(1, False), (2, False), (2, True)])
def test_a_train_step_of_its_own(replicas, clips):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(7, 5)), random.normal(size=(7, 2))
    model = compiled(own_step(clips), replicas)
    gradients, outputs, _ = in_numpy([np.array(one) for one in model.get_weights()], x, y)
    ((_, one),) = measured(model, x, y)[0].items()
    expected = norm(gradients)
    # What a step hands to the optimizer is what is measured.
    assert one.total.gradient_norm == pytest.approx(min(expected, 1e-3) if clips else expected)
    assert one.total.update_norm == pytest.approx(RATE * one.total.gradient_norm)
    for histogram, values in zip(one.outputs.values(), outputs, strict=True):
        assert_counts(histogram, values)


@pytest.mark.parametrize("replicas", [1, 2])
def test_gradients_are_without_the_loss_scale(replicas):
    """In float16, where the loss is scaled by 2**15; the outputs are those of float16."""
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(8, n)).astype("float32") for n in (5, 2))
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = compiled(two_layers, replicas)
    finally:
        keras.config.set_dtype_policy("float32")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    weights = [np.float64(weight) for weight in model.get_weights()]
    gradients, _, _ = in_numpy(weights, np.float64(x), np.float64(y))
    ((_, one),) = measured(model, x, y)[0].items()
    assert one.total.gradient_norm == pytest.approx(norm(gradients), rel=1e-2)
    assert one.total.update_norm == pytest.approx(RATE * one.total.gradient_norm, rel=1e-5)
    assert one.outputs["hidden"].size == 8 * 7


def with_everything():
    inputs = keras.Input((5,))
    x = keras.layers.Dense(7, activation="relu")(inputs)
    x = keras.layers.Dropout(0.3, name="noise")(keras.layers.BatchNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_training_is_as_without_it(replicas):
    """Beside `GradientNoiseScale`, which runs the layers of one replica once more."""
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(20, n)).astype("float32") for n in (5, 2))

    def weights(callbacks):
        keras.utils.set_random_seed(1)
        model = compiled(with_everything, replicas, keras.optimizers.Adam())
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)
        return model.get_weights()

    telemetry = TrainingTelemetry(every_steps=2, verbose=0)
    watched = weights([GradientNoiseScale(every=1, verbose=0), telemetry])
    for one, other in zip(watched, weights([]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert telemetry.measurement.outputs["noise"].size == 8 * 7


def test_steps_continue_in_a_run_that_is_resumed():
    x, y = np.ones((40, 5), "float32"), np.zeros((40, 2), "float32")
    model = compiled(two_layers, 1)
    found, telemetry = measured(model, x, y, every_steps=3)
    assert list(found) == [1, 3]
    resumed = TrainingTelemetry(every_steps=3, verbose=0)
    resumed.set_state(telemetry.get_state())
    resumed.listen(lambda one: found.update({one.step: one}))
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[resumed])
    assert list(found) == [1, 3, 6, 9, 12, 15]
    assert history.history["update_ratio"][-1] == found[15].total.update_ratio
    assert not {"call", "apply"} & {*vars(model.layers[1]), *vars(model.optimizer)}


def test_a_resumed_epoch_without_a_measurement_logs_the_last_one(capsys):
    """As the epoch does that was not interrupted, also where it was measured before that."""
    x, y = np.ones((40, 5), "float32"), np.zeros((40, 2), "float32")
    model = compiled(two_layers, 1)
    first, resumed = TrainingTelemetry(every_steps=4), TrainingTelemetry(every_steps=4)
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[first])
    resumed.set_state(json.loads(json.dumps(first.get_state())))
    logs = model.fit(x[:16], y[:16], batch_size=BATCH, verbose=0, callbacks=[resumed]).history
    assert resumed.measurement is None
    assert logs["gradient_norm"] == [first.measurement.total.gradient_norm]
    assert logs["update_ratio"] == [first.measurement.total.update_ratio]
    assert capsys.readouterr().out.count(f"Telemetry: {first.measurement}") == 2


def test_what_cannot_be_measured():
    with pytest.raises(UserError, match="every_steps is 0"):
        TrainingTelemetry(every_steps=0)
    plain = two_layers()
    plain.compile("sgd", "mse")
    data = np.ones((2, 5)), np.ones((2, 2))
    with pytest.raises(UserError, match="not made under kdist.MirroredStrategy"):
        plain.fit(*data, verbose=0, callbacks=[TrainingTelemetry()])
    frozen = compiled(two_layers, 1)
    frozen.trainable = False
    with pytest.raises(UserError, match="no trainable weights"):
        frozen.fit(*data, verbose=0, callbacks=[TrainingTelemetry()])
