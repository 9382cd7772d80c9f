"""Rematerialization: the model that the same layers give without it."""

import contextlib

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
        self.noise = keras.layers.GaussianNoise(0.1)

    def build(self, shape):
        self.wide.build(shape)
        self.norm.build((None, 2 * SIZE))
        self.narrow.build((None, 2 * SIZE))
        super().build(shape)

    def call(self, x, training=None):
        hidden = self.noise(self.norm(self.wide(x), training=training), training=training)
        result = x + self.drop(self.narrow(hidden), training=training)
        self.add_loss(0.01 * tf.reduce_mean(tf.square(result)))
        return result


def of_blocks():
    inputs = keras.Input((SIZE,))
    hidden = Block()(Block()(inputs))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dropout(0.3)(hidden))
    # The loss reads the logits, which Keras keeps beside the result of the softmax.
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def recurrent():
    inputs = keras.Input((SIZE,))
    steps = keras.layers.Reshape((4, 2))(inputs)
    steps = keras.layers.LSTM(6, return_sequences=True, dropout=0.2, recurrent_dropout=0.2)(steps)
    attended = keras.layers.MultiHeadAttention(2, 3, dropout=0.2)(steps, steps)
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Add()([steps, attended]))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(pooled))


def of_functions():
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


def of_weights_alone():
    """A layer that computes values from a weight alone, beside the weight."""

    class Layer(keras.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], CLASSES))

        def call(self, x):
            kernel = tf.convert_to_tensor(self.kernel)
            return tf.where(x[:, :, None] > 0, kernel, tf.tanh(2 * kernel))[:, 0]

    inputs = keras.Input((SIZE,))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(Layer()(inputs)))


def of_stateful_functions():
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


def made(strategy, model_fn, mode):
    def make():
        with keras.RematScope(mode=mode, layer_names=["block"], output_size_threshold=4):
            return model_fn()

    return strategy.build(make)


def trained(strategy, model_fn, mode, **options):
    with harness.policy("float64"):
        keras.utils.set_random_seed(0)
        model = made(strategy, model_fn, mode)
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", **options)
        history = model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history
        return [*model.get_weights(), np.asarray(history["loss"])]


def check(got, expected, tolerance=1e-9):
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("mode", ["full", "activations", "list_of_layers", "larger_than"])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_fit_gives_the_same_model(mode, replicas):
    strategy = kdist.MirroredStrategy(replicas=replicas)
    expected = trained(kdist.MirroredStrategy(replicas=1), of_blocks, None)
    check(trained(strategy, of_blocks, mode), expected)


@pytest.mark.parametrize(
    "model_fn", [recurrent, of_functions, of_stateful_functions, of_weights_alone]
)
@pytest.mark.parametrize("replicas", [1, 3])
def test_loops_and_functions_give_the_same_model(model_fn, replicas):
    strategy = kdist.MirroredStrategy(replicas=replicas)
    expected = trained(kdist.MirroredStrategy(replicas=1), model_fn, None)
    check(trained(strategy, model_fn, "full"), expected)


@pytest.mark.parametrize(
    "options", [{"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 2}]
)
def test_other_ways_to_run_give_the_same_model(options):
    jit = {"jit_compile": True} if "jit_compile" in options else {}
    expected = trained(kdist.MirroredStrategy(replicas=1), of_blocks, None, **jit)
    check(trained(kdist.MirroredStrategy(replicas=2), of_blocks, "full", **options), expected)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("model_fn", [of_blocks, of_weights_alone])
def test_with_divided_weights(model_fn):
    strategy = kdist.MirroredStrategy(replicas=3, shard_weights=True)
    expected = trained(kdist.MirroredStrategy(replicas=1), model_fn, None)
    check(trained(strategy, model_fn, "full"), expected)


def own_loop(strategy, mode, penalty=False):
    with harness.policy("float64"):
        keras.utils.set_random_seed(0)
        model = made(strategy, of_blocks, mode)
        with strategy.scope():
            optimizer = keras.optimizers.SGD(0.05)
            optimizer.build(model.trainable_variables)

    def step(batch):
        x, labels = batch
        with tf.GradientTape() as tape:
            with tf.GradientTape() if penalty else contextlib.nullcontext() as inner:
                if penalty:
                    inner.watch(x)
                predicted = model(x, training=not penalty)
                losses = keras.losses.sparse_categorical_crossentropy(labels, predicted)
                loss = tf.reduce_mean(losses) + sum(model.losses)
            if penalty:
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


@pytest.mark.parametrize("penalty", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
def test_an_own_loop_gives_the_same_model(replicas, penalty):
    """With a penalty on the gradient of the inputs, the step has a gradient of a gradient."""
    expected = own_loop(kdist.MirroredStrategy(replicas=1), None, penalty)
    check(own_loop(kdist.MirroredStrategy(replicas=replicas), "full", penalty), expected)


def kept_between_passes(mode):
    """Operations of the forward pass within a block whose results the backward pass reads."""
    strategy = kdist.MirroredStrategy(replicas=1)
    model = made(strategy, of_blocks, mode)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.train_on_batch(X, Y)

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
