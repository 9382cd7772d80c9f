import kdist
import keras
import numpy as np
import pytest
import tensorflow as tf
from kdist.errors import UserError
from replicas import assert_close, fit

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


def small_model():
    inputs = keras.Input((6,))
    x = keras.layers.Dense(8, activation="tanh")(inputs)
    x = keras.layers.BatchNormalization()(x)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))


def trained_weights(strategy):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 6)) * 3 + 2, rng.integers(0, 3, 32)
    optimizer, loss = keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy"
    options = {"optimizer": optimizer, "loss": loss, "batch_size": 8, "epochs": 2}
    return fit(strategy, small_model, x, y, **options).get_weights()


@pytest.mark.usefixtures("float64")
def test_strategies_of_several_sizes_give_the_same_weights_one_after_another():
    first, *others = (
        trained_weights(kdist.MirroredStrategy(replicas=replicas)) for replicas in (2, 1, 4, 2)
    )
    for weights in others:
        assert_close(weights, first, rtol=0, atol=1e-9)


def test_single_batches_are_predicted_and_trained_under_several_strategies():
    x, y = np.ones((5, 6)), np.zeros(5)
    for replicas in (2, 1, 3):
        model = kdist.MirroredStrategy(replicas=replicas).build(small_model)
        model.compile("sgd", "sparse_categorical_crossentropy")
        before = model.predict_on_batch(x)
        model.train_on_batch(x, y)
        assert before.shape == model.predict_on_batch(x).shape == (5, 3)
        assert np.abs(model.predict_on_batch(x) - before).max() > 0


def test_a_model_is_prepared_again_only_when_it_changes(monkeypatch):
    strategy = kdist.MirroredStrategy(replicas=2)
    model = strategy.build(small_model)
    prepared, original = [], type(strategy).prepare
    monkeypatch.setattr(
        type(strategy), "prepare", lambda *given: prepared.append(1) or original(*given)
    )

    def trained(steps):
        prepared.clear()
        for _ in range(steps):
            model.train_on_batch(np.ones((5, 6)), np.zeros(5))
        return len(prepared)

    model.compile("sgd", "sparse_categorical_crossentropy")
    assert trained(3) == 2  # the second time with the step, and what it has built
    assert trained(3) == 0
    model.train_function = None
    assert trained(3) == 2
    model.optimizer = keras.optimizers.Adam()  # made outside of the scope
    model.train_function = None
    assert trained(3) == 2
    assert all(
        isinstance(variable.value, tf.distribute.DistributedValues)
        for variable in model.optimizer.variables
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert trained(3) == 2


class DoublesLargeLosses(keras.Model):
    def train_step(self, data):
        if tf.reduce_sum(data) > 8.0:
            return 2.0 * tf.reduce_sum(data)
        return tf.reduce_sum(data)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("is_of_model", [False, True])
def test_a_step_in_a_function_of_the_users_may_have_python_conditions(replicas, is_of_model):
    """As under TensorFlow's strategies, where AutoGraph converts what converted code runs."""
    strategy = kdist.MirroredStrategy(replicas=replicas)
    with strategy.scope():
        model = DoublesLargeLosses()

    def step(rows):
        return model.train_step(rows)

    @tf.function
    def run(rows):
        return strategy.run(model.train_step if is_of_model else step, args=(rows,))

    rows = tf.data.Dataset.from_tensors(np.ones((4, 2))).concatenate(
        tf.data.Dataset.from_tensors(np.ones((6, 2)))
    )
    sums = [
        float(strategy.reduce("SUM", run(batch), axis=None))
        for batch in strategy.experimental_distribute_dataset(rows)
    ]
    assert sums == [8.0, 24.0]


def test_is_a_mirrored_strategy_with_the_devices_asked_for():
    strategy = kdist.MirroredStrategy(replicas=3)
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategy.num_replicas_in_sync == 3
    assert strategy.devices == ("CPU:0", "CPU:1", "CPU:2")
    assert kdist.MirroredStrategy().devices == ("CPU:0",)


@pytest.mark.parametrize("text", ["nonsense", '{"cluster": 3}'])
def test_a_cluster_that_tensorflow_cannot_read_is_refused(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match="TF_CONFIG is .*expected text such as"):
        kdist.MirroredStrategy(replicas=2)


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(UserError, match="backend is torch, .*KERAS_BACKEND"):
        kdist.MirroredStrategy(replicas=2)


def test_cpus_reduce_to_one_device_unless_told_otherwise():
    own = tf.distribute.HierarchicalCopyAllReduce()
    default = kdist.MirroredStrategy(replicas=2).extended._cross_device_ops
    assert isinstance(default, tf.distribute.ReductionToOneDevice)
    assert kdist.MirroredStrategy(["CPU:0"], own).extended._cross_device_ops is own


@pytest.mark.parametrize(
    ("received", "words"),
    [
        (lambda: None, "returned NoneType"),
        (3, "takes a function"),
        (keras.Model(), r"takes a function .*, received Model: .*kdist\.load_model"),
    ],
)
def test_build_takes_a_function_that_returns_a_model(received, words):
    with pytest.raises(UserError, match=words):
        kdist.MirroredStrategy(replicas=2).build(received)


def test_variables_built_outside_the_scope_are_copied_to_every_replica():
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5.0)
    weights = []
    for strategy in (tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=2)):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
        model.build((None, 2))
        model.compile(keras.optimizers.SGD(0.01), "mse")
        model.fit(x, y, batch_size=3, shuffle=False, verbose=0)
        weights.append(model.get_weights()[0])
    np.testing.assert_allclose(*weights, rtol=1e-5)


def test_the_first_step_of_a_process_is_traced_once():
    """The step makes no variable: TensorFlow would trace it twice."""
    keras.backend.clear_session()
    strategy = kdist.MirroredStrategy(replicas=2)
    traced = []

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            traced.append(x)
            return self.dense(x)

    with strategy.scope():
        model = Model()
        model.compile("sgd", "mse")
    model(np.ones((4, 1)))
    traced.clear()
    model.fit(np.ones((8, 1)), np.ones((8, 1)), batch_size=4, verbose=0)
    assert len(traced) == 1 + 1  # Keras's symbolic build, and the step


@pytest.mark.parametrize("replicas", [1, 2])
def test_scalar_variables_are_numbers_as_without_a_strategy(replicas):
    model = kdist.MirroredStrategy(replicas=replicas).build(small_model)
    optimizer = keras.optimizers.SGD(0.5)
    model.compile(optimizer, "sparse_categorical_crossentropy")
    seen = []
    ask = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(
            (int(optimizer.iterations), float(optimizer.learning_rate))
        )
    )
    model.fit(np.ones((5, 6)), np.ones(5), batch_size=2, verbose=0, callbacks=[ask])
    assert seen == [(1, 0.5), (2, 0.5), (3, 0.5)]
    with pytest.raises(TypeError, match="Only scalar arrays"):
        float(model.weights[0])


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_compiled_loop_of_ones_own_outside_of_run_is_of_one_device(replicas):
    """As under TensorFlow's strategies: every copy of a variable is updated."""
    weights = []
    for strategy in (tf.distribute.get_strategy(), kdist.MirroredStrategy(replicas=replicas)):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = small_model()
            optimizer = keras.optimizers.SGD(0.5)
            optimizer.build(model.trainable_variables)

        @tf.function(autograph=False)
        def step(x, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = keras.ops.sum(model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(gradients, model.trainable_variables)

        step(tf.ones((4, 6)))
        weights.append([strategy.experimental_local_results(w.value) for w in model.weights])
    for (one,), copies in zip(*weights, strict=True):
        for copy in copies:
            np.testing.assert_allclose(copy, one, rtol=1e-6)


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_sparse_and_ragged_rows_batch_by_batch(kind):
    rows = np.array([[1, 2, 0], [3, 0, 0], [4, 1, 2], [2, 0, 0], [1, 1, 0]])
    x = tf.sparse.from_dense(np.float32(rows))
    if kind == "ragged":
        x = tf.RaggedTensor.from_tensor(rows, padding=0)

    def make():
        if kind == "sparse":
            inputs = keras.Input((3,), sparse=True)
            return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))
        inputs = keras.Input((None,), dtype="int32", ragged=True)
        vectors = keras.layers.Embedding(5, 3, embeddings_initializer="ones")(inputs)
        mean = keras.layers.Lambda(lambda one: tf.reduce_mean(one, axis=1), output_shape=(3,))
        return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(mean(vectors)))

    def trained(replicas):
        model = kdist.MirroredStrategy(replicas=replicas).build(make)
        model.compile("sgd", "mse")
        y = np.arange(5.0)
        results = [model.train_on_batch(x, y), model.test_on_batch(x, y)]
        predictions = model.predict_on_batch(x)
        return [*map(np.asarray, results), predictions, *model.get_weights()]

    assert_close(trained(1), trained(3), rtol=1e-5)


class AppliesIfFinite(keras.Model):
    """Skips a step whose loss is not finite, by hand."""

    def train_step(self, data):
        x, y = data
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        gradients = tape.gradient(loss, weights)
        finite = tf.math.is_finite(loss)
        tf.cond(finite, lambda: self.optimizer.apply(gradients, weights), lambda: None)
        return {"loss": loss}


@pytest.mark.parametrize("scaled", [False, True])
def test_an_optimizer_may_be_applied_in_a_condition(scaled):
    def make():
        inputs = keras.Input((6,))
        return AppliesIfFinite(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))

    def trained(replicas):
        strategy = kdist.MirroredStrategy(replicas=replicas)
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
        x = np.random.default_rng(0).normal(size=(10, 6))
        return fit(strategy, make, x, x[:, :1], optimizer=optimizer).get_weights()

    assert_close(trained(1), trained(2), rtol=1e-5)
