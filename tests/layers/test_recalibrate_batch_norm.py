import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from kdist.layers import SyncBatchNormalization
from kdist.layers.recalibrate_batch_norm import calibration_batches, recalibrate_batch_norm

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

LAYERS = [
    keras.layers.BatchNormalization,
    lambda **options: keras.layers.BatchNormalization(synchronized=True, **options),
    SyncBatchNormalization,
]


def data(samples=50, width=6, seed=0):
    rng = np.random.default_rng(seed)
    # Batches far apart: an average of variances would miss most of the variance.
    return (rng.normal(size=(samples, width)) + np.arange(samples)[:, None]).astype("float32")


def two_norms(layer=SyncBatchNormalization):
    inputs = keras.Input((6,))
    x = keras.layers.Dense(5, name="dense", kernel_initializer="he_normal")(inputs)
    x = layer(name="norm")(x)
    x = keras.layers.Dense(4, name="dense2", activation="tanh")(x)
    return keras.Model(inputs, layer(name="norm2")(x))


def batches_of(x, *sizes):
    return np.split(x, np.cumsum(sizes)[:-1])


def expected_statistics(model, batches):
    """Mean and variance of both batch norms' inputs, in NumPy float64."""
    first, second = [], []
    for batch in batches:
        kernel, bias = model.get_layer("dense").get_weights()
        hidden = batch.astype("float64") @ kernel + bias
        gamma, beta = model.get_layer("norm").get_weights()[:2]
        first.append(hidden)
        normal = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-3) * gamma + beta
        kernel, bias = model.get_layer("dense2").get_weights()
        second.append(np.tanh(normal @ kernel + bias))
    whole = [np.concatenate(values) for values in (first, second)]
    return [(values.mean(0), values.var(0)) for values in whole]


def check(model, expected, rtol=1e-4, atol=1e-5):
    for name, (mean, variance) in zip(("norm", "norm2"), expected, strict=True):
        layer = model.get_layer(name)
        np.testing.assert_allclose(layer.moving_mean, mean, rtol=rtol, atol=atol)
        np.testing.assert_allclose(layer.moving_variance, variance, rtol=rtol, atol=atol)


@pytest.mark.parametrize("layer", LAYERS)
def test_population_statistics_of_uneven_batches(layer):
    model, x = two_norms(layer), data()
    batches = batches_of(x, 20, 3, 20, 7)
    recalibrate_batch_norm(model, batches)
    check(model, expected_statistics(model, batches))


@pytest.mark.parametrize(("layer", "replicas"), [(LAYERS[1], 2), (LAYERS[2], 3)])
def test_under_a_strategy(layer, replicas):
    with kdist.MirroredStrategy(replicas=replicas).scope():
        model = two_norms(layer)
    batches = batches_of(data(), 20, 3, 20, 7)
    recalibrate_batch_norm(model, batches)
    check(model, expected_statistics(model, batches))
    strategy = model.distribute_strategy
    for copy in strategy.experimental_local_results(model.get_layer("norm").moving_mean.value):
        np.testing.assert_array_equal(copy, model.get_layer("norm").moving_mean)


def test_stock_batch_norm_under_a_stock_strategy():
    """By whole batches, and all copies get the same statistics."""
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model = two_norms(keras.layers.BatchNormalization)
    x = data(40)
    recalibrate_batch_norm(model, batches_of(x, 20, 20))
    check(model, expected_statistics(model, batches_of(x, 20, 20)))
    moving = model.get_layer("norm2").moving_variance.value
    first, second = strategy.experimental_local_results(moving)
    np.testing.assert_array_equal(first, second)


def test_nothing_but_the_statistics_changes():
    model = two_norms()
    model.compile(keras.optimizers.Adam(), "mse", metrics=["mae"], jit_compile=False)
    x = data()
    model.fit(x, x[:, :4], verbose=0)
    optimizer = [variable.numpy() for variable in model.optimizer.variables]
    metrics = [v.numpy() for metric in model.metrics for v in metric.variables]
    before = {v.path: v.numpy() for v in model.variables}
    calls = [vars(layer).get("call") for layer in model.layers]
    recalibrate_batch_norm(model, x)
    for variable in model.variables:
        same = np.array_equal(variable.numpy(), before[variable.path])
        assert same == ("moving" not in variable.path), variable.path
    for old, variable in zip(optimizer, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    after = [v.numpy() for metric in model.metrics for v in metric.variables]
    np.testing.assert_array_equal(after, metrics)
    assert [vars(layer).get("call") for layer in model.layers] == calls
    inference = model(x).numpy()
    np.testing.assert_allclose(model.predict(x, verbose=0), inference, rtol=1e-4, atol=1e-5)
    # Training goes on as usual, with the layers' own calls.
    model.fit(x, x[:, :4], verbose=0)


def test_dropout_is_off():
    inputs = keras.Input((6,))
    dropped = keras.layers.Dropout(0.5)(inputs)
    model = keras.Model(inputs, keras.layers.BatchNormalization(name="norm")(dropped))
    x = data()
    recalibrate_batch_norm(model, x)
    np.testing.assert_allclose(model.get_layer("norm").moving_mean, x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(model.get_layer("norm").moving_variance, x.var(0), rtol=1e-5)


def test_masked_positions_do_not_count():
    inputs = keras.Input((5, 3))
    masked = keras.layers.Masking()(inputs)
    model = keras.Model(inputs, SyncBatchNormalization(name="norm")(masked))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 5, 3)).astype("float32") + 4
    x[rng.random((20, 5)) < 0.4] = 0
    x[16:] = 0  # the last batch is masked entirely
    recalibrate_batch_norm(model, batches_of(x, 8, 8, 4))
    kept = x[x.any(-1)].astype("float64")
    np.testing.assert_allclose(model.get_layer("norm").moving_mean, kept.mean(0), rtol=1e-5)
    np.testing.assert_allclose(model.get_layer("norm").moving_variance, kept.var(0), rtol=1e-5)


def test_a_shared_layer_counts_all_its_calls():
    inputs = keras.Input((6,))
    norm = keras.layers.BatchNormalization(name="norm")
    model = keras.Model(inputs, norm(norm(inputs) * 3 + 1))
    x = data(20).astype("float64")
    recalibrate_batch_norm(model, data(20))
    again = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-3) * 3 + 1
    both = np.concatenate([x, again])
    np.testing.assert_allclose(norm.moving_mean, both.mean(0), rtol=1e-4)
    np.testing.assert_allclose(norm.moving_variance, both.var(0), rtol=1e-4)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.norm, self.idle = SyncBatchNormalization(), SyncBatchNormalization()
        self.idle.build((None, 6))

    def call(self, inputs, training=None):
        return self.norm(inputs["x"], training=training)


def test_a_subclassed_model_with_named_inputs_and_a_layer_that_is_not_called():
    model, x = Subclassed(), data(40)
    model({"x": x[:2]})
    recalibrate_batch_norm(model, {"x": x}, batch_size=16)
    np.testing.assert_allclose(model.norm.moving_mean, x.mean(0), rtol=1e-5)
    np.testing.assert_array_equal(model.idle.moving_mean, np.zeros(6))
    np.testing.assert_array_equal(model.idle.moving_variance, np.ones(6))


def test_frozen_batch_norms_keep_theirs():
    model, x = two_norms(), data()
    model.get_layer("norm").trainable = False
    recalibrate_batch_norm(model, x)
    np.testing.assert_array_equal(model.get_layer("norm").moving_variance, np.ones(5))
    assert not np.array_equal(model.get_layer("norm2").moving_variance, np.ones(4))


class Pieces(keras.utils.PyDataset):
    def __init__(self, x, size=10):
        super().__init__()
        self.x, self.size = x, size

    def __len__(self):
        return len(self.x) // self.size

    def __getitem__(self, index):
        part = self.x[index * self.size :][: self.size]
        return part, part[:, 0]


FORMS = {
    "array": lambda x: x,
    "tensor": tf.constant,
    "pair": lambda x: (x, x[:, 0]),
    "dataset": lambda x: tf.data.Dataset.from_tensor_slices(x).batch(10),
    "dataset of pairs": lambda x: tf.data.Dataset.from_tensor_slices((x, x)).batch(10),
    "list": lambda x: list(x.reshape(5, 10, 6)),
    "generator of pairs": lambda x: ((part, part) for part in x.reshape(5, 10, 6)),
    "PyDataset": Pieces,
}


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_data(form, steps):
    x = data(50)
    batches = list(calibration_batches(FORMS[form](x), steps, 10))
    assert len(batches) == (steps or 5)
    for index, batch in enumerate(batches):
        part = batch[0] if isinstance(batch, tuple) else batch
        np.testing.assert_array_equal(part, x[index * 10 :][:10])


@pytest.mark.parametrize("form", ["pair", "PyDataset"])
def test_what_follows_x_in_a_batch_is_left_out(form):
    model, x = two_norms(), data(50)
    recalibrate_batch_norm(model, FORMS[form](x), batch_size=10)
    check(model, expected_statistics(model, batches_of(x, *[10] * 5)))


def test_an_endless_dataset_needs_steps():
    model, x = two_norms(), data(50)
    endless = tf.data.Dataset.from_tensor_slices(x).batch(10).repeat()
    with pytest.raises(UserError, match="steps=100"):
        recalibrate_batch_norm(model, endless)
    recalibrate_batch_norm(model, endless, steps=5)
    check(model, expected_statistics(model, batches_of(x, *[10] * 5)))


def broken(x):
    yield x
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (broken, OSError, "disk"),
        (lambda x: [x, x * np.nan], UserError, "NaN"),
        (lambda x: [x, x[:, :2]], tf.errors.InvalidArgumentError, "incompatible"),
        (lambda x: [], UserError, "data has no batch"),
    ],
)
def test_an_error_leaves_the_model_as_it_was(make, error, words):
    with kdist.MirroredStrategy(replicas=2).scope():
        model = two_norms()
    recalibrate_batch_norm(model, data(30, seed=1))
    before = model.get_weights()
    with pytest.raises(error, match=words):
        recalibrate_batch_norm(model, make(data(20)))
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not any("call" in vars(layer) for layer in model.layers)


def no_norm():
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])


def frozen():
    model = two_norms()
    model.trainable = False
    return model


def unbuilt():
    return keras.Sequential([keras.layers.BatchNormalization()])


@pytest.mark.parametrize(
    ("make", "values", "words"),
    [
        (no_norm, data(), "the model has no keras"),
        (frozen, data(), "all are frozen"),
        (unbuilt, data(), "not built"),
        (two_norms, 3, "data has the type int"),
    ],
)
def test_bad_arguments(make, values, words):
    with pytest.raises(UserError, match=words):
        recalibrate_batch_norm(make(), values)


def test_float16_model():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = two_norms()
    finally:
        keras.config.set_dtype_policy("float32")
    batches = batches_of(data(30), 15, 15)
    recalibrate_batch_norm(model, batches)
    check(model, expected_statistics(model, batches), rtol=1e-2, atol=2e-3)
