import doctest
import math

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from kdist.callbacks import GradientNoiseScale, PrintThroughput, gradient_noise_scale
from kdist.callbacks.gradient_noise_scale import noise_scale
from kdist.distribute import telemetry
from kdist.errors import UserError

DIMENSION, BATCH = 3, 8


class Distance(keras.Layer):
    """w - x, so that half its square has the gradient w - x for a sample x."""

    def build(self, _):
        self.w = self.add_weight(shape=(DIMENSION,), initializer="zeros", name="w")

    def call(self, x):
        return self.w - x


def half_square(_, distance):
    return keras.ops.sum(keras.ops.square(distance), -1) / 2


def quadratic(replicas, rate=0.0, after=(), **options):
    def make():
        inputs = keras.Input((DIMENSION,))
        x = Distance()(inputs)
        for layer in after:
            x = layer()(x)
        return keras.Model(inputs, x)

    strategy = kdist.MirroredStrategy(replicas=replicas)
    model = strategy.build(make)
    with strategy.scope():
        model.compile(options.pop("optimizer", None) or keras.optimizers.SGD(rate), half_square,
                      **options)  # fmt: skip
    return model


def samples(count, mean=1.0, deviation=2.0):
    return np.random.default_rng(0).normal(mean, deviation, (count, DIMENSION)).astype("float32")


def measured(model, x, batch_size=BATCH, epochs=1, **options):
    callback = GradientNoiseScale(verbose=0, **options)
    history = model.fit(
        x, x, batch_size=batch_size, epochs=epochs, verbose=0, shuffle=False, callbacks=[callback]
    )
    assert callback.noise_scale == history.history["gradient_noise_scale"][-1]
    return callback


def expected(x, replicas, smoothing, batch_size=BATCH):
    """McCandlish et al. 2018, equations A.2 and A.3, on fading averages, with w = 0."""
    sums = np.zeros(6)
    for start in range(0, len(x), batch_size):
        batch = np.float64(x[start : start + batch_size])
        size = -(-len(batch) // replicas)
        parts = [batch[i : i + size] for i in range(0, len(batch), size)]
        norms = [np.sum(part.mean(0) ** 2) for part in parts]
        new = [sum(norms), sum(1 / len(part) for part in parts), len(parts)]
        whole = [np.sum(batch.mean(0) ** 2), 1 / len(batch), 1]
        sums = smoothing * sums + [*new, *np.multiply(whole, len(parts))]
    small, per_small = sums[:2] / sums[2]
    large, per_large = sums[3:5] / sums[5]
    noise = (small - large) / (per_small - per_large)
    return noise / (large - noise * per_large)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("count", [64, 61, 57])
def test_against_numpy_on_a_quadratic(replicas, count):
    """Uneven and empty replicas included: 57 leaves one sample for the last batch."""
    x = samples(count)
    callback = measured(quadratic(replicas), x, smoothing=0.9)
    assert callback.noise_scale == pytest.approx(expected(x, replicas, 0.9), rel=1e-4)


def test_the_noise_of_a_quadratic_is_found():
    """Variance 4 in each of three directions, and a gradient of -1 in each: 12 / 3."""
    callback = measured(quadratic(4), samples(20_000), batch_size=40, smoothing=0.9999)
    assert callback.noise_scale == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize("accumulated", [None, 2])
def test_one_replica_measures_what_two_would(accumulated):
    def trained(replicas):
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulated)
        return measured(quadratic(replicas, optimizer=optimizer), x, every=1, epochs=2)

    x = samples(64)
    one, two = trained(1), trained(2)
    assert one.noise_scale == pytest.approx(two.noise_scale, rel=1e-4)
    assert two.noise_scale == pytest.approx(one.noise_scale)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_training_is_as_without_it(replicas):
    def weights(watched):
        keras.utils.set_random_seed(1)
        layers = [kdist.layers.SyncBatchNormalization, lambda: keras.layers.Dropout(0.3)]
        model = quadratic(replicas, rate=0.1, after=layers)
        callbacks = [GradientNoiseScale(every=2, verbose=0)] * watched
        x = samples(28)
        model.fit(x, x, batch_size=8, verbose=0, shuffle=False, callbacks=callbacks)
        return model.get_weights()

    for one, other in zip(weights(True), weights(False), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_loss_scale_is_taken_out():
    x = samples(64)
    with kdist.MirroredStrategy(replicas=2).scope():
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0), 2.0**10)
    scaled = measured(quadratic(2, optimizer=optimizer), x)
    assert scaled.sums == pytest.approx(measured(quadratic(2), x).sums, rel=1e-5)


def test_steps_in_one_execution_and_halves_now_and_then():
    x = samples(64)
    callback = measured(quadratic(1, steps_per_execution=4), x, every=4, smoothing=0.0)
    last = x[32:40]  # step 4
    assert callback.noise_scale == pytest.approx(expected(last, 2, 0.0), rel=1e-4)


def test_it_prints_what_it_means(capsys):
    model, x = quadratic(2), samples(64)
    model.fit(x, x, batch_size=8, epochs=2, verbose=0, callbacks=[GradientNoiseScale()])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines[:2]] == ["Gradient noise scale"] * 2
    value = lines[1].split()[3]
    assert lines[2] == f"More replicas help up to a global batch of about {value} images; it is 8"


@pytest.mark.parametrize(
    ("scale", "words"), [(1.2, "1 image"), (0.4, "0 images"), (1210.4, "1,210 images")]
)
def test_one_image_is_not_called_images(monkeypatch, capsys, scale, words):
    monkeypatch.setattr("kdist.callbacks.gradient_noise_scale.noise_scale", lambda **_: scale)
    model, x = quadratic(2), samples(16)
    model.fit(x, x, batch_size=8, verbose=0, callbacks=[GradientNoiseScale()])
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"Gradient noise scale: {words}"
    assert last == f"More replicas help up to a global batch of about {words}; it is 8"


def test_noise_without_a_gradient_is_reported(capsys):
    """Two opposite samples: their mean is 0."""
    x = np.tile([[1.0], [-1.0]], (8, DIMENSION)).astype("float32")
    model, callback = quadratic(2), GradientNoiseScale()
    model.fit(x, x, batch_size=2, verbose=0, shuffle=False, callbacks=[callback])
    line = "Gradient noise scale: unknown so far, the gradient is too noisy\n"
    assert capsys.readouterr().out == line
    assert math.isnan(callback.noise_scale)


def test_dropout_is_noise_on_one_replica_too():
    """Equal samples, half of each dropped: noise 1 against a signal of 1."""
    values = []
    for replicas in (1, 2):
        strategy = kdist.MirroredStrategy(replicas=replicas)
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input((1,)),
                    keras.layers.Dropout(0.5, seed=1),
                    keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
                ]
            )
            model.compile(keras.optimizers.SGD(0.0), lambda _, y: y[:, 0])
        x = np.ones((4000, 1), "float32")
        values.append(measured(model, x, every=1, smoothing=0.999).noise_scale)
    assert values == pytest.approx([1, 1], rel=0.2)


def test_gradients_that_overflowed_are_skipped():
    x = samples(64)
    x[8:16] = 1e30  # their squares overflow
    rest = np.delete(x, np.s_[8:16], axis=0)
    got, expected_sums = measured(quadratic(2), x).sums, measured(quadratic(2), rest).sums
    assert got == pytest.approx(expected_sums, rel=1e-5)


def test_nothing_measured_is_not_reported_as_noise(capsys):
    x = samples(3)
    model, callback = quadratic(1), GradientNoiseScale()
    model.fit(x, x, batch_size=1, verbose=0, callbacks=[callback])
    assert "nothing measured yet" in capsys.readouterr().out
    model.fit(x, x, epochs=1, initial_epoch=1, verbose=0, callbacks=[callback])
    assert capsys.readouterr().out == ""


def test_the_next_fit_is_not_measured():
    model, x = quadratic(2), samples(16)
    callback = measured(model, x)
    before = list(callback.sums)
    assert model.distribute_strategy.model_state(model).gradient_norms is None
    model.fit(x, x, verbose=0)
    assert callback.sums == before
    model.evaluate(x, x, verbose=0, callbacks=[callback])
    assert model.distribute_strategy.model_state(model).gradient_norms is None


def test_a_resumed_run_goes_on():
    x = samples(64)
    whole = measured(quadratic(2), x)
    first = measured(quadratic(2), x[:32])
    second = GradientNoiseScale(verbose=0)
    second.set_state(first.get_state())
    quadratic(2).fit(x[32:], x[32:], batch_size=8, shuffle=False, verbose=0, callbacks=[second])
    assert second.sums == pytest.approx(whole.sums, rel=1e-5)


def test_beside_a_throughput_meter():
    model, x = quadratic(2), samples(16)
    callbacks = [PrintThroughput(verbose=0), GradientNoiseScale(verbose=0)]
    history = model.fit(x, x, verbose=0, callbacks=callbacks)
    assert {"images_per_sec", "gradient_noise_scale"} <= set(history.history)


positive = st.floats(1e-3, 1e3)


@given(noise=positive, signal=positive, small=st.integers(1, 50), factor=st.integers(2, 10))
def test_the_estimate_solves_its_two_equations(noise, signal, small, factor):
    big = small * factor
    value = noise_scale(
        small_squared_norms=2 * (signal + noise / small),
        small_inverse_sizes=2 / small,
        small_count=2,
        large_squared_norms=3 * (signal + noise / big),
        large_inverse_sizes=3 / big,
        large_count=3,
    )
    assert value == pytest.approx(noise / signal, rel=1e-6)


def test_nothing_measured_is_not_a_number():
    assert math.isnan(noise_scale(**dict.fromkeys(telemetry.FIELDS, 0)))


def test_the_example_in_the_docstring():
    assert doctest.testmod(gradient_noise_scale).failed == 0


def test_a_model_out_of_reach_is_refused():
    inputs = keras.Input((DIMENSION,))
    model = keras.Model(inputs, Distance()(inputs))
    model.compile("sgd", half_square)
    with pytest.raises(UserError, match=r"not made under kdist\.MirroredStrategy.*remove"):
        measured(model, samples(8))


class OwnStep(keras.Model):
    def train_step(self, data):
        return {}


def test_a_model_with_its_own_step_is_refused():
    strategy = kdist.MirroredStrategy(replicas=1)
    with strategy.scope():
        inputs = keras.Input((DIMENSION,))
        model = OwnStep(inputs, Distance()(inputs))
        model.compile("sgd", half_square)
    with pytest.raises(UserError, match="has its own train_step"):
        measured(model, samples(8))


@pytest.mark.parametrize(
    "arguments", [{"smoothing": 1}, {"smoothing": "0.9"}, {"smoothing": -0.1}, {"every": 0}]
)
def test_arguments_out_of_range_are_refused(arguments):
    with pytest.raises(UserError, match="pass"):
        GradientNoiseScale(**arguments)


def test_an_embeddings_sparse_gradient():
    strategy = kdist.MirroredStrategy(replicas=2)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((2,)), keras.layers.Embedding(5, 2), keras.layers.Flatten()]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x = np.random.default_rng(0).integers(0, 5, (16, 2))
    callback = GradientNoiseScale(verbose=0)
    model.fit(x, np.ones((16, 4)), batch_size=4, verbose=0, callbacks=[callback])
    assert np.isfinite(callback.sums).all()
    assert tf.reduce_all(tf.constant(callback.sums) > 0)
