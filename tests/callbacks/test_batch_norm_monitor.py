import math

import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.callbacks import BatchNormMonitor
from kdist.errors import UserError
from kdist.layers import SyncBatchNormalization
from kdist.layers.batch_norm_diagnosis import (
    LayerGap,
    diagnose,
    measure_distance,
    spread_over_replicas,
)

NAMES = [
    "batch_norm_gap",
    "batch_norm_replica_gap",
    "loss_in_training_mode",
    "loss_in_inference_mode",
]
EQUAL = (1.0, 1.0)


def data(samples=64, mean=0.0, deviation=1.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(mean, deviation, (samples, 3)).astype("float32")
    return x, np.arange(samples) % 2


def one_norm(norm, *, strategy=None, rate=0.0, after=(), loss="sparse_categorical_crossentropy"):
    """A batch norm straight on the input, so that its statistics are those of the data."""
    with (strategy or tf.distribute.get_strategy()).scope():
        inputs = keras.Input((3,))
        x = norm()(inputs)
        for layer in after:
            x = layer(x)
        model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(x))
        model.compile(keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    return model


def stock_norm(**options):
    return lambda: keras.layers.BatchNormalization(name="norm", **options)


def stock_strategy():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())


def monitored(model, train, *, batch=None, epochs=1, batch_size=32, **options):
    monitor = BatchNormMonitor(batch=train if batch is None else batch, **options)
    history = model.fit(
        *train, batch_size=batch_size, epochs=epochs, verbose=0, shuffle=False, callbacks=[monitor]
    )
    return monitor, history.history


def expected_gap(norm, *shares):
    """Mean over shares of both distances, in NumPy float64."""
    mean, variance = (np.float64(v) for v in (norm.moving_mean, norm.moving_variance))
    means = [np.abs(s.mean(0) - mean) / np.sqrt(variance + 1e-3) for s in shares]
    variances = [np.abs(np.log((s.var(0) + 1e-3) / (variance + 1e-3))) for s in shares]
    return np.mean(means), np.mean(variances)


def test_distances_by_hand():
    norm = keras.layers.BatchNormalization(epsilon=0.1)
    found = measure_distance([3, -1], [0.9, 0.3], norm, ([1, 0], [3.9, 0.15]))
    logs = (math.log(4 / 1) + math.log(0.4 / 0.25)) / 2
    assert found == pytest.approx([(2 / 2 + 1 / 0.5) / 2, logs])
    replicas = [([0.0], [0.9]), ([0.5], [3.9]), ([2.0], [0.9])]
    assert spread_over_replicas(replicas, norm) == pytest.approx(2.0)
    assert spread_over_replicas(replicas[:2], norm) == pytest.approx(math.log(4))
    assert spread_over_replicas(replicas[:1], norm) == 0


def near(**known):
    return LayerGap(**{"name": "near", "mean": 0.1, "variance": 0.1} | known)


def off(**known):
    return near(name="off", mean=2.0, **known)


@pytest.mark.parametrize(
    ("layer", "cause"),
    [
        (
            off(initial_weight=0.2, values_per_channel=2, unchanged=True, frozen=True),
            "never updated, as the layer is fro",
        ),
        (
            off(initial_weight=0.2, values_per_channel=2, unchanged=True),
            "never updated; pass the training",
        ),
        (off(initial_weight=0.2, replica_gap=0.3), r"differ by 0\.30 between replicas"),
        (near(name="off", replica_gap=0.3), "the replicas drifted"),
        (
            off(initial_weight=0.2, values_per_channel=2),
            "the moving statistics lag: after so few steps 20 % of",
        ),
        (
            off(initial_weight=0.05, values_per_channel=99, batch_gap=0.6),
            r"replicas' rows differ by 0\.60, and the layer is",
        ),
        (
            off(initial_weight=0.05, values_per_channel=15, batch_gap=0.4),
            "the batch per replica has only 15 values per channel",
        ),
        (off(initial_weight=0.05, values_per_channel=16), "the weights change faster"),
        (near(name="off", mean=float("nan")), "NaN or infinite"),
        (near(name="off", variance=float("inf")), "NaN or infinite"),
    ],
)
def test_each_cause_from_numbers(layer, cause):
    for layers in ([layer, near()], [near(), layer]):
        with pytest.raises(AssertionError, match=rf"off's moving statistics.*{cause}"):
            raise AssertionError(diagnose(layers, EQUAL))


def test_no_line_up_to_the_thresholds():
    layer = near(mean=0.5, replica_gap=0.1, initial_weight=1.0, values_per_channel=1)
    assert diagnose([layer], EQUAL) is None


def test_a_loss_that_is_larger_at_inference_is_told_of_small_gaps_too():
    layers = [near(name="off", mean=0.2, values_per_channel=6000, batch_gap=0.3), near()]
    assert diagnose(layers, (0.4, 0.49)) is None
    assert diagnose(layers, (0.6, 0.4)) is None  # as with dropout
    for equal in ((-10.0, -10.0), (1e-7, 2e-7)):
        assert diagnose(layers, equal) is None
    line = diagnose(layers, (0.4, 0.6))
    assert "off's moving statistics" in line
    assert "the loss is 0.400 in training mode, 0.600 in inference mode" in line
    assert "replicas' rows differ by 0.30" in line


def test_gap_and_losses_against_numpy():
    x, y = data(mean=2.0, deviation=3.0)
    model = one_norm(stock_norm(momentum=0.5), rate=0.1)
    batch = (x[:20], y[:20])
    monitor, logs = monitored(model, (x, y), batch=batch, epochs=2, verbose=0)
    assert list(logs)[-4:] == NAMES
    (gap,) = monitor.gaps
    norm = model.get_layer("norm")
    assert (gap.mean, gap.variance) == pytest.approx(expected_gap(norm, batch[0]), rel=1e-4)
    assert logs["batch_norm_gap"][-1] == max(gap.mean, gap.variance)
    assert (gap.values_per_channel, gap.initial_weight, monitor.steps) == (20, 0.5**4, 4)
    assert logs["batch_norm_replica_gap"] == [0, 0]

    gamma, beta, mean, variance = norm.get_weights()
    kernel, bias = model.layers[-1].get_weights()

    def loss(mean, variance):
        logits = ((batch[0] - mean) / np.sqrt(variance + 1e-3) * gamma + beta) @ kernel + bias
        odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return -np.log(odds[np.arange(20), batch[1]]).mean()

    in_training = loss(batch[0].mean(0), batch[0].var(0))
    assert logs["loss_in_training_mode"][-1] == pytest.approx(in_training, rel=1e-5)
    assert logs["loss_in_inference_mode"][-1] == pytest.approx(loss(mean, variance), rel=1e-5)
    assert all(type(logs[name][0]) is float for name in NAMES)


@pytest.mark.parametrize(
    ("make", "parts", "in_scope"),
    [
        (stock_norm(momentum=0.5), 2, False),
        (stock_norm(momentum=0.5), 2, True),
        (stock_norm(momentum=0.5, synchronized=True), 1, False),
        (lambda: SyncBatchNormalization(momentum=0.5, name="norm"), 1, False),
    ],
    ids=["stock", "stock in scope", "stock synchronized", "kdist"],
)
def test_two_replicas(make, parts, in_scope):
    """Layers that are not synchronized see each replica's rows apart."""
    x, y = data(mean=2.0, deviation=3.0)
    strategy = stock_strategy()
    model = one_norm(make, strategy=strategy)
    if in_scope:
        with strategy.scope():
            monitor, logs = monitored(model, (x, y), batch=(x[:9], y[:9]), verbose=0)
    else:
        monitor, logs = monitored(model, (x, y), batch=(x[:9], y[:9]), verbose=0)
    shares = [x[:5], x[5:9]] if parts == 2 else [x[:9]]
    norm, (gap,) = model.get_layer("norm"), monitor.gaps
    # As a file holds it: replica 0's.
    assert (gap.mean, gap.variance) == pytest.approx(expected_gap(norm, *shares), rel=1e-4)
    assert gap.values_per_channel == (4 if parts == 2 else 9)
    assert (logs["batch_norm_replica_gap"][0] > 0) == (parts == 2)
    moving = norm.moving_mean, norm.moving_variance
    copies = [[c.numpy() for c in strategy.experimental_local_results(v.value)] for v in moving]
    (mean, other_mean), (variance, other) = np.float64(copies)
    drift = [np.abs(other_mean - mean) / np.sqrt(variance + 1e-3)]
    drift.append(np.abs(np.log((other + 1e-3) / (variance + 1e-3))))
    assert logs["batch_norm_replica_gap"][0] == pytest.approx(np.mean(drift, 1).max(), rel=1e-6)
    gamma, beta = norm.get_weights()[:2]
    normal = [(s - s.mean(0)) / np.sqrt(s.var(0) + 1e-3) * gamma + beta for s in shares]
    logits = np.concatenate(normal) @ model.layers[-1].get_weights()[0]
    odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    loss = -np.log(odds[np.arange(9), y[:9]]).mean()
    assert logs["loss_in_training_mode"][0] == pytest.approx(loss, rel=1e-4)


def the_line(capsys):
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "norm's moving statistics" in lines[0]
    return lines[0]


def test_statistics_that_lag(capsys):
    monitored(one_norm(stock_norm()), data(mean=3.0))
    assert "the moving statistics lag: after so few steps 98 % of" in the_line(capsys)


def test_replicas_that_drifted(capsys):
    x, y = data()
    x[np.arange(64) % 32 < 16] += 3  # the first half of each batch is replica 0's
    monitored(one_norm(stock_norm(momentum=0.1), strategy=stock_strategy()), (x, y))
    assert "the replicas drifted" in the_line(capsys)


def test_a_batch_per_replica_that_is_too_small(capsys):
    train = data(16)
    batch = tuple(part[:2] for part in train)
    monitored(one_norm(stock_norm(momentum=0.5)), train, batch=batch, batch_size=2)
    assert "the batch per replica has only 2 values per channel" in the_line(capsys)


def test_a_frozen_layer(capsys):
    monitored(one_norm(stock_norm(trainable=False)), data(mean=3.0))
    assert "never updated, as the layer is frozen" in the_line(capsys)


class NotInTraining(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.norm = keras.layers.BatchNormalization(name="norm")

    def build(self, shape):
        self.norm.build(shape)

    def call(self, x):
        return self.norm(x, training=False)


def test_training_that_is_not_passed(capsys):
    monitored(one_norm(NotInTraining), data(mean=3.0))
    assert "never updated; pass the training argument" in the_line(capsys)


class KeepsSums(keras.layers.Layer):
    """A layer with all that a pass may change: a variable, a seed and a loss."""

    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(1)
        self.sums = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.sums.assign(self.sums + 1)
        self.add_loss(1e-3 * keras.ops.mean(keras.ops.square(x)))
        return x + 0 * keras.random.normal((3,), seed=self.seed)


def test_the_training_and_the_model_are_as_without_it():
    def trained(watched):
        keras.utils.set_random_seed(3)
        after = [
            KeepsSums,
            lambda: keras.layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l2"),
        ]
        strategy = kdist.MirroredStrategy(replicas=2)
        model = one_norm(
            SyncBatchNormalization,
            strategy=strategy,
            rate=0.1,
            after=[lambda x, make=make: make()(x) for make in after],
        )
        monitor = BatchNormMonitor(batch=data(10, seed=1), verbose=0)
        history = model.fit(
            *data(),
            epochs=2,
            verbose=0,
            shuffle=False,
            validation_data=data(8),
            callbacks=[monitor] * watched,
        ).history
        shown = [model.evaluate(*data(), verbose=0)]
        values = [
            copy.numpy()
            for variable in model.variables
            for copy in strategy.experimental_local_results(variable.value)
        ]
        calls = [layer for layer in model.layers if "call" in vars(layer)]
        assert not calls
        if watched:
            assert np.isfinite([history.pop(name) for name in NAMES]).all()
        return history, shown, values

    watched, alone = trained(True), trained(False)
    assert watched[:2] == alone[:2]
    for array, expected in zip(watched[2], alone[2], strict=True):
        np.testing.assert_array_equal(array, expected)


def test_masks_and_layers_called_twice_count_their_values_once():
    norm = SyncBatchNormalization(name="norm", momentum=0.5)
    inputs = keras.Input((4, 3))
    masked = keras.layers.Masking()(inputs)
    x = norm(masked) + norm(2.0 * masked + 1.0)
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(x))
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(1, 2, (5, 4, 3)).astype("float32")
    x[:, 2:] = 0
    monitor, _ = monitored(model, (x, np.zeros((5, 3), "float32")), verbose=0)
    values = x[:, :2].reshape(-1, 3)
    # Keras's arithmetic hands no mask on, so the second call sees every position.
    both = np.concatenate([values, (2 * x + 1).reshape(-1, 3)])
    (gap,) = monitor.gaps
    assert (gap.mean, gap.variance) == pytest.approx(expected_gap(norm, both), rel=1e-4)
    assert gap.values_per_channel == 30


def test_steps_count_in_executions_and_go_on_in_a_resumed_run():
    """The last execution of an epoch has one step of its three."""
    model = one_norm(stock_norm())
    model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=3)
    monitor, _ = monitored(model, data(), batch_size=16, epochs=2, verbose=0)
    assert monitor.get_state() == {"steps": 8}
    resumed = BatchNormMonitor(batch=data(), verbose=0)
    resumed.set_state({"steps": 8})
    model.fit(*data(), batch_size=16, verbose=0, callbacks=[resumed])
    assert resumed.steps == 12
    assert resumed.gaps[0].initial_weight == pytest.approx(0.99**12)


def test_it_reports_nan_without_a_warning(capsys):
    x, y = data()
    x[3] = np.nan
    _, logs = monitored(one_norm(stock_norm()), (x, y))
    assert math.isnan(logs["batch_norm_gap"][0])
    assert "NaN or infinite" in the_line(capsys)


def test_sample_weights():
    x, y = data(16)
    model = one_norm(stock_norm())
    weight = np.r_[np.ones(8), np.zeros(8)]
    _, logs = monitored(model, (x, y), batch=(x, y, weight), verbose=0)
    odds = model.predict(x[:8], verbose=0)
    # Keras's default reduction divides by all samples, those of weight 0 too.
    expected = -np.log(odds[np.arange(8), y[:8]]).sum() / 16
    assert logs["loss_in_inference_mode"][0] == pytest.approx(expected, rel=1e-5)


X, Y = data(4)


@pytest.mark.parametrize("batch", [X, (X, Y[:3]), (X[:, :2], Y), (X, Y, Y, Y)], ids=len)
def test_a_batch_that_the_model_does_not_take_is_refused_before_an_epoch(batch):
    words = r"(?s)batch has arrays of shapes \(4, .*pass a batch in the form that fit"
    with pytest.raises(UserError, match=words):
        monitored(one_norm(stock_norm()), data(), batch=batch)


def test_a_model_without_batch_norm_is_refused():
    with pytest.raises(UserError, match=r"has no keras\.layers\.BatchNormalization.*remove"):
        monitored(one_norm(keras.layers.LayerNormalization), data())
