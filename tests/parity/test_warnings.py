"""What cannot be exact is said, once; what cannot work is refused."""

import warnings
from pathlib import Path

import custom_cases
import kdist
import keras
import numpy as np
import pytest
import samples
import small_models
import tensorflow as tf
from kdist.errors import UserError
from kdist.layers import SyncBatchNormalization

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")

LOSS = "sparse_categorical_crossentropy"


def compiled(strategy, model_fn, **options):
    with strategy.scope():
        model = model_fn()
        model.compile(keras.optimizers.SGD(0.1), LOSS, metrics=["accuracy"], **options)
    return model


def plain_normalization():
    inputs = keras.Input((6,))
    x = keras.layers.BatchNormalization(momentum=0.5, name="first_norm")(inputs)
    x = keras.layers.BatchNormalization(name="frozen_norm", trainable=False)(x)
    x = keras.layers.BatchNormalization(name="second_norm")(keras.layers.Dense(8)(x))
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))


def fit(model, batch_size=64):
    x, y = samples.classes(144)
    return model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)


def test_plain_batch_norm_is_warned_of_once_by_name():
    model = compiled(kdist.MultiWorkerMirroredStrategy(replicas=2), plain_normalization)
    with pytest.warns(match=r"^first_norm, second_norm: .*strategy\.build"):
        fit(model)
    fit(model)  # warnings are errors, so no second one
    model.evaluate(*samples.classes(5), verbose=0)


def test_what_build_made_is_not_warned_of():
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=2)
    model = strategy.build(plain_normalization)
    model.compile("sgd", LOSS)
    fit(model)  # warnings are errors


def test_one_replica_is_not_warned_of():
    fit(compiled(kdist.MultiWorkerMirroredStrategy(replicas=1), plain_normalization), batch_size=16)


X, Y = samples.classes(27)


def dataset(batch_size):
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)
    return rows.map(lambda x, y: (x, y)).cache().repeat(2).prefetch(2)


@pytest.mark.parametrize(
    "train",
    [
        lambda model: model.fit(X, Y, batch_size=14, shuffle=False, verbose=0),
        lambda model: model.fit(dataset(14), shuffle=False, verbose=0),
        lambda model: model.train_on_batch(X[:14], Y[:14]),
    ],
    ids=["arrays", "dataset", "batch"],
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_small_batches_of_unsynchronized_batch_norm_are_warned_of(train, replicas):
    model = compiled(kdist.MultiWorkerMirroredStrategy(replicas=replicas), plain_normalization)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(model)
    (message,) = [str(one.message) for one in caught if "per channel" in str(one.message)]
    assert message.startswith(
        f"first_norm, second_norm: batch normalization over {14 // replicas} values per channel on"
        f" each replica, as the global batch of 14 is divided over {replicas}."
    )
    assert ("synchronize it" in message) == (replicas > 1)


def test_positions_of_an_image_count_as_values():
    def images(layer):
        inputs = keras.Input((2, 2, 3))
        x = keras.layers.Flatten()(layer(name="norm")(inputs))
        return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))

    x, y = np.zeros((8, 2, 2, 3), "float32"), np.zeros(8)
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=1),
        lambda: images(keras.layers.BatchNormalization),
    )
    model.fit(x, y, batch_size=4, verbose=0)  # 16 values; warnings are errors
    with pytest.warns(match="^norm: batch normalization over 12 values"):
        model.fit(x, y, batch_size=3, verbose=0)
    model.evaluate(x, y, batch_size=2, verbose=0)


@pytest.mark.usefixtures("float64")
def test_saved_moving_statistics_score_as_evaluated(tmp_path):
    """keras#14372: a file holds the statistics of one replica."""
    model = compiled(kdist.MultiWorkerMirroredStrategy(replicas=4), plain_normalization)
    with pytest.warns(UserWarning, match="first_norm"):
        fit(model)
    x, y = samples.classes(27)
    before = model.evaluate(x, y, batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    saved = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(saved.evaluate(x, y, verbose=0), before, atol=1e-6)
    assert np.isfinite(before).all()


class LargestLoss(custom_cases.GuideStep):
    def loss_of(self, x, y, predictions):
        return keras.ops.max(custom_cases.squared_errors(y, predictions))


class LargestInFunction(LargestLoss):
    @tf.function
    def loss_of(self, x, y, predictions):
        return super().loss_of(x, y, predictions)


class LargestAdded(keras.layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.max(keras.ops.square(x)))
        return x


def fit_with_warnings(model):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        fit(model)
        fit(model)
    return [str(one.message) for one in caught if one.category is UserWarning]


class KeptNorms(custom_cases.GuideStep):
    """Writes the norm of each replica's own gradients."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.norm = tf.Variable(0.0, trainable=False)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(custom_cases.squared_errors(y, self(x, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.norm.assign(tf.linalg.global_norm(gradients))
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class SteppingSometimes(custom_cases.GuideStep):
    def train_step(self, data):
        x, y = data
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(custom_cases.squared_errors(y, self(x, training=True)))
        gradients = tape.gradient(loss, weights)
        finite = tf.math.is_finite(loss)
        tf.cond(finite, lambda: self.optimizer.apply(gradients, weights), lambda: None)
        return {"loss": loss}


def test_what_differs_by_replica_and_is_written_is_named_by_its_line():
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=2), lambda: custom_cases.custom(KeptNorms)
    )
    (message,) = fit_with_warnings(model)
    assert "global_norm(gradients)" in message
    assert "written into a variable" in message
    assert "kdist.sum_gradients(" in message


def test_gradients_that_a_condition_would_sum_are_refused_by_name():
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=2),
        lambda: custom_cases.custom(SteppingSometimes),
    )
    with pytest.raises(UserError, match=r"optimizer\.apply needs a sum .*kdist\.sum_gradients"):
        fit(model)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: custom_cases.custom(LargestLoss), "return keras.ops.max("),
        (lambda: custom_cases.custom(LargestInFunction), "loss = self.loss_of(x, y, predictions)"),
        (lambda: custom_cases.behind_hidden(LargestAdded), "self.add_loss(keras.ops.max("),
    ],
    ids=["own step", "function", "added"],
)
def test_a_number_that_no_replica_has_a_part_of_is_named_once_by_its_line(make, line, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)
    (message,) = fit_with_warnings(compiled(kdist.MultiWorkerMirroredStrategy(replicas=2), make))
    assert message.startswith(("test_warnings.py:", "custom_cases.py:"))
    assert line in message
    assert "kdist.gather(" in message


class OfPairs(custom_cases.GuideStep):
    def loss_of(self, x, y, predictions):
        others = predictions[::-1]
        similarities = keras.ops.matmul(predictions, keras.ops.transpose(others))
        labels = keras.ops.arange(keras.ops.shape(x)[0])
        return keras.ops.mean(
            keras.losses.sparse_categorical_crossentropy(labels, similarities, from_logits=True)
        )


class OfDistances(custom_cases.GuideStep):
    def loss_of(self, x, y, predictions):
        distances = keras.ops.sum((predictions[:, None] - predictions[None]) ** 2, axis=-1)
        labels = keras.ops.arange(keras.ops.shape(x)[0])
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, -distances)


class OfShuffled(custom_cases.GuideStep):
    def train_step(self, data):
        x, y = data
        order = tf.random.shuffle(tf.range(tf.shape(x)[0]))
        mixed = 0.5 * x + 0.5 * tf.gather(x, order)
        return super().train_step((mixed, y))


class OverTheBatch(keras.layers.Layer):
    def call(self, x):
        attention = keras.ops.softmax(keras.ops.einsum("id,jd->ij", x, x))
        return x + keras.ops.matmul(attention, x)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: custom_cases.custom(OfPairs), "others = predictions[::-1]"),
        (lambda: custom_cases.custom(OfDistances), "keras.ops.sum((predictions[:, None] - "),
        (
            lambda: custom_cases.custom(OfShuffled),
            "order = tf.random.shuffle(tf.range(tf.shape(x)[0]))",
        ),
        (lambda: custom_cases.behind_hidden(OverTheBatch), 'keras.ops.einsum("id,jd->ij", x, x)'),
    ],
    ids=["similarities", "distances", "shuffled", "layer"],
)
def test_values_that_depend_on_several_samples_are_named_once_by_their_line(
    make, line, monkeypatch
):
    monkeypatch.chdir(Path(__file__).parent)
    (message,) = fit_with_warnings(compiled(kdist.MultiWorkerMirroredStrategy(replicas=2), make))
    assert message.startswith("test_warnings.py:")
    assert line in message
    assert "Each of these values depends on several samples" in message


def test_a_step_that_runs_eagerly_is_named_once():
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=2),
        lambda: custom_cases.custom(custom_cases.SummedByHand),
        run_eagerly=True,
    )
    (message,) = fit_with_warnings(model)
    assert message.startswith("the train_step of SummedByHand runs eagerly")
    assert "run_eagerly=False" in message


@pytest.mark.parametrize(
    "kind", [custom_cases.GuideStep, custom_cases.SummedByHand, custom_cases.OfManyParts]
)
def test_own_steps_of_means_and_sums_are_not_warned_of(kind):
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=2), lambda: custom_cases.custom(kind)
    )
    assert fit_with_warnings(model) == []


def conditional(inputs, norm):
    def condition(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: norm(x, training=True), lambda: x)

    return keras.layers.Lambda(condition, output_shape=lambda shape: shape)(inputs)


class NormalizedCell(keras.layers.SimpleRNNCell):
    """A recurrent cell that normalizes its inputs."""

    def __init__(self, norm):
        super().__init__(8)
        self.norm = norm

    def call(self, inputs, states, training=False):
        return super().call(self.norm(inputs, training=training), states)


def recurrent(inputs, norm):
    steps = keras.layers.Reshape((1, 6))(inputs)
    return keras.layers.RNN(NormalizedCell(norm))(steps)


@pytest.mark.parametrize("synchronized", [small_models.synchronized, SyncBatchNormalization])
@pytest.mark.parametrize("place", [conditional, recurrent])
def test_a_batch_norm_in_a_condition_or_a_loop_is_refused_by_name(synchronized, place):
    def make():
        inputs = keras.Input((6,))
        norm = synchronized()
        norm.build((None, 6))
        x = place(inputs, norm)
        return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))

    model = compiled(kdist.MultiWorkerMirroredStrategy(replicas=2), make)
    with pytest.raises(
        UserError, match=r"The layer '\w*batch_normalization\w*' needs a sum .*tf\.cond"
    ):
        fit(model)


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_a_model_made_in_another_scope_is_refused(method):
    other = kdist.MultiWorkerMirroredStrategy(replicas=2)
    model = compiled(tf.distribute.get_strategy(), small_models.mlp)
    x, y = samples.classes(8)
    with other.scope(), pytest.raises(UserError, match="outside the strategy's scope"):
        getattr(model, method)(x, y)


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch"])
def test_xla_over_logical_cpus_is_refused(method):
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=2), small_models.mlp, jit_compile=True
    )
    x, y = samples.classes(8)
    with pytest.raises(UserError, match="jit_compile=True"):
        getattr(model, method)(x, y)


def test_automatic_xla_falls_back_quietly():
    fit(
        compiled(
            kdist.MultiWorkerMirroredStrategy(replicas=2), small_models.mlp, jit_compile="auto"
        )
    )


def test_automatic_xla_is_on_where_the_only_replica_is_a_gpu(monkeypatch):
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=1)
    assert not compiled(strategy, small_models.mlp, jit_compile="auto").jit_compile
    monkeypatch.setattr(kdist.MultiWorkerMirroredStrategy, "devices", ["/device:GPU:0"])
    model = compiled(strategy, small_models.mlp, jit_compile="auto")
    assert model.jit_compile
    monkeypatch.undo()
    fit(model)  # the CPU compiles what a GPU would


def test_a_file_of_one_gpu_is_trained_on_anywhere(monkeypatch, tmp_path):
    with monkeypatch.context() as patched:
        patched.setattr(kdist.MultiWorkerMirroredStrategy, "devices", ["/device:GPU:0"])
        model = compiled(kdist.MultiWorkerMirroredStrategy(replicas=1), small_models.mlp)
        assert model.jit_compile
        model.save(tmp_path / "automatic.keras")
        model.compile("sgd", LOSS, jit_compile=True)
        model.save(tmp_path / "asked_for.keras")
    two = kdist.MultiWorkerMirroredStrategy(replicas=2)
    automatic, asked_for = (
        two.build(lambda name=name: keras.models.load_model(tmp_path / f"{name}.keras"))
        for name in ("automatic", "asked_for")
    )
    fit(automatic)
    assert not automatic.jit_compile
    assert asked_for.jit_compile


def test_a_model_compiled_anew_is_no_longer_compiled_inside_run(monkeypatch):
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=2)
    model = compiled(strategy, small_models.mlp, jit_compile=True)
    with monkeypatch.context() as patched:
        patched.setattr(kdist.MultiWorkerMirroredStrategy, "devices", ["GPU:0", "GPU:1"])
        strategy.prepare(model)
    with pytest.raises((tf.errors.OpError, ValueError)):
        fit(model)  # XLA over logical CPUs
    model.compile("sgd", LOSS)
    fit(model)


def test_automatic_xla_leaves_out_layers_that_it_cannot_compile(monkeypatch):
    strategy = kdist.MultiWorkerMirroredStrategy(replicas=1)
    monkeypatch.setattr(kdist.MultiWorkerMirroredStrategy, "devices", ["/device:GPU:0"])
    model = compiled(strategy, small_models.mlp)
    model.layers[-1].supports_jit = False
    model.compile("sgd", "mse")
    assert not model.jit_compile


def test_xla_on_one_replica_is_kept():
    model = compiled(
        kdist.MultiWorkerMirroredStrategy(replicas=1), small_models.mlp, jit_compile=True
    )
    fit(model)
    assert model.jit_compile
