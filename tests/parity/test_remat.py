"""Rematerialization: the model that the same layers give without it."""

import functools

import harness
import kdist
import keras
import numpy as np
import pytest
import samples
import tensorflow as tf

CLASSES, SIZE, ROWS, BATCH = 5, 8, 25, 10
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(ROWS, SIZE)), RNG.integers(0, CLASSES, size=ROWS)

pytestmark = pytest.mark.usefixtures("without_graph_optimizer")


class Block(keras.layers.Layer):
    """Layers with draws, states and losses of their own."""

    def __init__(self, rate=0.3, **options):
        super().__init__(**options)
        self.wide = keras.layers.Dense(2 * SIZE, activation="gelu", kernel_regularizer="l2")
        self.norm = keras.layers.BatchNormalization()
        self.narrow = keras.layers.Dense(SIZE)
        self.drop = keras.layers.Dropout(rate)

    def build(self, shape):
        self.wide.build(shape)
        self.norm.build((None, 2 * SIZE))
        self.narrow.build((None, 2 * SIZE))
        super().build(shape)

    def call(self, x, training=None):
        hidden = self.norm(self.wide(x), training=training)
        result = x + self.drop(self.narrow(hidden), training=training)
        self.add_loss(0.01 * tf.reduce_mean(tf.square(result)))
        return result


def make_blocks():
    first, second = Block(), Block()
    inputs = keras.Input((SIZE,))
    hidden = keras.layers.BatchNormalization()(second(first(inputs)))
    # The loss reads the logits, which Keras keeps beside the result of the softmax.
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def make_blocks_of_two_modes():
    """The same layers, with scopes of other modes inside the scope."""
    with keras.RematScope(mode="activations"):
        first = Block()
    with keras.RematScope(mode="list_of_layers", layer_names=["listed"]):
        second = Block(name="listed")
    inputs = keras.Input((SIZE,))
    hidden = keras.layers.BatchNormalization()(second(first(inputs)))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def make_small_block():
    inputs = keras.Input((SIZE,))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(Block()(inputs)))


def make_recurrent():
    inputs = keras.Input((SIZE,))
    steps = keras.layers.Reshape((4, 2))(inputs)
    steps = keras.layers.LSTM(6, return_sequences=True, dropout=0.2, recurrent_dropout=0.2)(steps)
    attended = keras.layers.MultiHeadAttention(2, 3, dropout=0.2)(steps, steps)
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Add()([steps, attended]))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(pooled))


def make_nested_functions():
    """Layers that call `keras.remat` themselves, one inside another."""

    class Layer(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, x):
            def inner(value, scale):
                drawn = keras.random.normal(tf.shape(value), seed=self.seeds, dtype=value.dtype)
                return {"sum": tf.sin(value @ self.kernel) * scale + drawn, "count": tf.size(value)}

            outer = keras.remat(lambda value: keras.remat(inner)(value, scale=2.0)["sum"])
            return outer(x)

    inputs = keras.Input((SIZE,))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(Layer()(inputs)))


def make_weights_alone():
    """A layer that computes values from a weight alone, beside the weight."""

    class Layer(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], CLASSES))

        def call(self, x):
            kernel = tf.convert_to_tensor(self.kernel)
            return tf.where(x[:, :, None] > 0, kernel, tf.tanh(2 * kernel))[:, 0]

    inputs = keras.Input((SIZE,))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(Layer()(inputs)))


def make_stateful_functions():
    """A layer that returns the result of a function with a draw, and a result beside it."""

    class Layer(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))
            self.seeds = keras.random.SeedGenerator(1)

        @tf.function
        def drawn(self, x):
            noise = keras.random.normal(tf.shape(x), seed=self.seeds, dtype=x.dtype)
            return tf.tanh(x @ self.kernel) + noise

        def call(self, x):
            return self.drawn(x), tf.sin(x @ self.kernel)

    inputs = keras.Input((SIZE,))
    drawn, sine = Layer()(inputs)
    hidden = keras.layers.Add()([drawn, sine])
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def build(strategy, make_model, mode):
    def build_model():
        with keras.RematScope(mode=mode):
            return make_model()

    return strategy.build(build_model)


def train(make_model, mode, *, rows=ROWS, replicas=1, strategy_options=(), **options):
    """Return the weights and losses of a training, as arrays."""
    strategy = kdist.MirroredStrategy(replicas=replicas, **dict(strategy_options))
    with harness.policy("float64"):
        keras.utils.set_random_seed(0)
        model = build(strategy, make_model, mode)
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", **options)
        history = model.fit(X[:rows], Y[:rows], batch_size=BATCH, epochs=2, verbose=0).history
        return [*model.get_weights(), np.asarray(history["loss"])]


@functools.cache
def train_without_remat(make_model, **options):
    """Return the expected arrays of a training."""
    return train(make_model, None, **options)


def check(arrays, expected, tolerance=1e-9):
    for array, expected_array in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(array, expected_array, rtol=0, atol=tolerance)


@pytest.mark.parametrize("make_model", [make_blocks, make_blocks_of_two_modes])
def test_fit_gives_the_same_model(make_model):
    check(train(make_model, "full", replicas=3), train_without_remat(make_blocks))


@pytest.mark.parametrize(
    "make_model",
    [make_recurrent, make_nested_functions, make_stateful_functions, make_weights_alone],
)
def test_loops_and_functions_give_the_same_model(make_model):
    check(train(make_model, "full", replicas=3), train_without_remat(make_model))


@pytest.mark.parametrize(
    "options", [{"run_eagerly": True, "replicas": 2}, {"steps_per_execution": 2}]
)
def test_other_ways_to_run_give_the_same_model(options):
    check(train(make_blocks, "full", **options), train_without_remat(make_blocks))


def test_xla_gives_the_same_model():
    """Draws of XLA differ from TensorFlow's; batches of equal sizes are compiled once."""
    options = {"rows": 2 * BATCH, "jit_compile": True}
    expected = train_without_remat(make_small_block, **options)
    check(train(make_small_block, "full", replicas=2, **options), expected)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("make_model", [make_small_block, make_weights_alone])
def test_with_divided_weights(make_model):
    arrays = train(make_model, "full", replicas=3, strategy_options={"shard_weights": True})
    check(arrays, train_without_remat(make_model))


def train_with_penalty(mode, *, replicas):
    """Return the weights of a training with a penalty on the gradient of the inputs."""
    strategy = kdist.MirroredStrategy(replicas=replicas)
    with harness.policy("float64"):
        keras.utils.set_random_seed(0)
        model = build(strategy, make_small_block, mode)
        with strategy.scope():
            optimizer = keras.optimizers.SGD(0.05)
            optimizer.build(model.trainable_variables)

    def step(batch):
        x, labels = batch
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                predicted = model(x)
                losses = keras.losses.sparse_categorical_crossentropy(labels, predicted)
                loss = tf.reduce_mean(losses) + sum(model.losses)
            loss += tf.reduce_sum(tf.square(inner.gradient(loss, x)))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    @tf.function
    def run(batch):
        strategy.run(step, args=(batch,))

    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    for batch in strategy.experimental_distribute_dataset(data):
        run(batch)
    return model.get_weights()


def test_gradients_of_gradients_give_the_same_model():
    check(train_with_penalty("full", replicas=3), train_with_penalty(None, replicas=1))


def kept_between_passes(mode):
    """Operations of the forward pass within a block whose results the backward pass reads."""
    strategy = kdist.MirroredStrategy(replicas=1)
    model = build(strategy, make_blocks, mode)
    model.compile("sgd", "sparse_categorical_crossentropy")
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(x, labels):
        return strategy.run(model.train_step, args=((x, labels),))

    graph = step.get_concrete_function(tf.constant(X), tf.constant(Y)).graph
    operations = graph.get_operations()
    forward = [op for op in operations if "/block" in op.name and "gradient" not in op.name]
    first_gradient = next(at for at, op in enumerate(operations) if "gradient_tape" in op.name)
    before = set(operations[:first_gradient])
    return {
        tensor.name
        for op in operations[first_gradient:]
        for tensor in op.inputs
        if tensor.op in before and tensor.op in forward and tensor.shape.rank == 2
    }


def test_the_backward_pass_reads_no_value_within_a_block():
    """But inputs of blocks, and weights."""
    kept, kept_with_remat = kept_between_passes(None), kept_between_passes("full")
    assert any("Erf" in name for name in kept)
    assert not any("Erf" in name or "drop" in name for name in kept_with_remat), kept_with_remat


def test_keras_alone_is_not_changed():
    layer = keras.layers.Dense(3)
    again = keras.remat(layer)
    x = tf.constant(samples.classes(4)[0])
    np.testing.assert_array_equal(again(x), layer(x))
