"""Models that depend on the number of replicas, each with the cause that `check` has to name."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import kdist
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

FEATURES, CLASSES = 6, 3
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(48, FEATURES)) * 3 + 2
Y = DRAW.integers(0, CLASSES, 48)


def data():
    return X, Y


@dataclasses.dataclass(frozen=True, kw_only=True)
class Broken:
    """A model, its data, the cause, and what its line has to say."""

    build: Callable[[], Any]
    cause: str = ""
    line: str = ""
    data: Any = data
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    equal: bool = False


def compiled(model, optimizer=None, **options):
    given = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], **options}
    model.compile(optimizer or keras.optimizers.SGD(0.1), **given)
    return model


def behind_hidden(*between, kind=keras.Model):
    x = inputs = keras.Input((FEATURES,))
    for layer in (layers.Dense(8, "tanh", name="hidden"), *between):
        x = layer(x)
    return kind(inputs, layers.Dense(CLASSES, "softmax", name="classes")(x))


# Layers


class Centered(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0)


class OwnBatchNorm(layers.Layer):
    def build(self, shape):
        self.moving = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if not training:
            return x - self.moving
        mean = ops.mean(x, axis=0)
        spread = ops.std(x, axis=0)
        self.moving.assign(0.9 * self.moving + 0.1 * mean)
        return (x - mean) / (spread + 1e-3)


class AgainstOthers(layers.Layer):
    def call(self, x):
        likeness = ops.softmax(ops.matmul(x, ops.transpose(x)), axis=-1)
        return ops.matmul(likeness, x)


class StatefulNoise(layers.Layer):
    def call(self, x, training=False):
        return x + tf.random.normal(tf.shape(x), dtype=x.dtype) if training else x


class PythonNoise(layers.Layer):
    def call(self, x, training=False):
        return x * random.uniform(0.5, 1.5) if training else x


class DropsPath(layers.Layer):
    """Does not use its weights in every other trace, so that replicas have other gradients."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(8)
        self.is_dropped = True

    def call(self, x, training=False):
        if training:
            self.is_dropped = random.random() < 2 and not self.is_dropped
        return x if training and self.is_dropped else x + self.dense(x)


class CountedCalls(layers.Layer):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def call(self, x, training=False):
        if training:
            self.calls += 1
        return x * (1 + self.calls)


class FadingNoise(CountedCalls):
    """A fraction of a counter, which no trace can tell from a drawn number."""

    def call(self, x, training=False):
        if training:
            self.calls += 1
        return x * (1 + 1 / (2 + self.calls))


class PythonFunction(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def count(self, x):
        self.seen += 1
        return np.float64(0.01 * self.seen)

    def call(self, x, training=False):
        if not training:
            return x
        shift = tf.numpy_function(self.count, [x], tf.float64, stateful=True)
        return x + tf.cast(tf.reshape(shift, ()), x.dtype)


class LargestSeen(layers.Layer):
    def build(self, shape):
        self.largest = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.largest.assign(ops.maximum(self.largest, ops.max(x)))
        return x


class HalfNoise(layers.Layer):
    """Adds noise to the first half of the batch."""

    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        half = ops.shape(x)[0] // 2
        noise = keras.random.normal((half, x.shape[-1]), dtype=x.dtype, seed=self.seed)
        rest = ops.zeros_like(x[half:])
        return x + ops.concatenate([noise, rest], axis=0) if training else x


class Float32Product(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]), name="kernel")

    def call(self, x):
        product = ops.matmul(ops.cast(x, "float32"), ops.cast(self.kernel, "float32"))
        return ops.cast(product, x.dtype)


class LargestAdded(layers.Layer):
    def call(self, x):
        self.add_loss(ops.max(ops.square(x)))
        return x


def centered_between_layers():
    inputs = keras.Input((FEATURES,))
    x = layers.Dense(8, "tanh")(inputs)
    x = x - ops.mean(x, axis=0, keepdims=True)
    return compiled(keras.Model(inputs, layers.Dense(CLASSES, "softmax")(x)))


class CenteredInCall(keras.Model):
    """Centers in the model itself, behind noise for which its rows cannot be compared."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(8, "tanh")
        self.dropout = layers.Dropout(0.3)
        self.classes = layers.Dense(CLASSES, "softmax")

    def call(self, x, training=False):
        x = self.dropout(self.hidden(x), training=training)
        return self.classes(x - ops.mean(x, axis=0))


class Stores(layers.Layer):
    def call(self, x):
        self.stored = x
        self.add_loss(0.01 * ops.mean(ops.square(x)))
        return x


class ReadsStored(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + ops.std(self.get_layer("stores").stored)


class GathersStored(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + ops.std(self.get_layer("stores").stored)


# Steps


def errors_of(y, predictions):
    target = ops.one_hot(ops.cast(y, "int32"), CLASSES, dtype=predictions.dtype)
    return ops.sum(ops.square(target - predictions), axis=-1)


class Step(keras.Model):
    def loss_of(self, y, predictions):
        return ops.mean(errors_of(y, predictions))

    def change(self, gradients):
        return gradients

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.loss_of(y, self(x, training=True))
        gradients = self.change(tape.gradient(loss, self.trainable_variables))
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class LargestError(Step):
    def loss_of(self, y, predictions):
        return ops.max(errors_of(y, predictions))


class HardestHalf(Step):
    def loss_of(self, y, predictions):
        errors = errors_of(y, predictions)
        return ops.mean(ops.sort(errors)[-4:]) + ops.mean(errors)


class OfPairs(Step):
    def loss_of(self, y, predictions):
        similarities = ops.matmul(predictions, ops.transpose(predictions))
        return ops.mean(ops.logsumexp(similarities, axis=1)) + ops.mean(errors_of(y, predictions))


class ClippedByHand(Step):
    def change(self, gradients):
        return tf.clip_by_global_norm(gradients, 0.05)[0]


class SumInLoop(Step):
    def loss_of(self, y, predictions):
        errors = errors_of(y, predictions)

        def add(index, total):
            return index + 1, total + 0.01 * tf.reduce_sum(errors)

        start = (0, tf.zeros((), errors.dtype))
        return tf.while_loop(lambda index, _: index < 2, add, start)[1]


class SummedStep(Step):
    def loss_of(self, y, predictions):
        return 0.02 * ops.sum(errors_of(y, predictions))


class KeepsNorm(Step):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.norm = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def change(self, gradients):
        self.norm.assign(tf.linalg.global_norm(gradients))
        return gradients


class OpaqueStep(Step):
    @tf.function
    def train_step(self, data):
        return super().train_step(data)


class StepsSometimes(Step):
    def train_step(self, data):
        x, y = data
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.loss_of(y, self(x, training=True))
        gradients = tape.gradient(loss, weights)
        finite = tf.math.is_finite(loss)
        tf.cond(finite, lambda: self.optimizer.apply(gradients, weights), lambda: None)
        return {"loss": loss}


# Metrics and optimizers


class Largest(keras.metrics.Metric):
    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y, predictions, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(predictions)))

    def result(self):
        return self.largest


class LatestByLargest(Largest):
    """The mean of the latest batch, which is not the largest of the replicas'."""

    def update_state(self, y, predictions, sample_weight=None):
        self.largest.assign(ops.mean(predictions[:, 0]))


class CenteredByAll(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0)


class ScaledByOwn(layers.Layer):
    def call(self, x):
        centered = x - ops.mean(x, axis=0)
        return centered / ops.std(x, axis=0)


class PythonMomentum(keras.optimizers.SGD):
    """Keeps its velocities in a dictionary, by the variable's shape."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.velocities = {}

    def update_step(self, gradient, variable, learning_rate):
        key = tuple(variable.shape)
        if key not in self.velocities:
            with tf.init_scope():
                zeros = tf.zeros(variable.shape, variable.dtype)
                self.velocities[key] = tf.Variable(zeros, trainable=False)
        velocity = self.velocities[key]
        velocity.assign(0.9 * velocity + gradient)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * velocity)


class CountingOptimizer(keras.optimizers.SGD):
    """Divides its rate by a number that Python counts."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.updates = 0

    def update_step(self, gradient, variable, learning_rate):
        self.updates += 1
        rate = ops.cast(learning_rate, variable.dtype) / self.updates
        self.assign_sub(variable, rate * ops.cast(gradient, variable.dtype))


# Models


def bias_before_norm():
    inputs = keras.Input((FEATURES,))
    x = layers.Dense(8, name="biased")(inputs)
    x = layers.Activation("tanh")(layers.BatchNormalization()(x))
    return compiled(
        keras.Model(inputs, layers.Dense(CLASSES, "softmax")(x)), keras.optimizers.Lion(0.01)
    )


def random_weights():
    model = behind_hidden()
    model.layers[-1].kernel.assign(np.random.default_rng().normal(size=(8, CLASSES)))
    return compiled(model)


def in_own_strategy():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        return compiled(behind_hidden())


class SpreadOfActivity(keras.regularizers.Regularizer):
    def __call__(self, x):
        return ops.max(x) - ops.min(x)


MADE = []


def made_once():
    if not MADE:
        MADE.append(compiled(behind_hidden()))
    return MADE[0]


ONE_LAYER = layers.Dense(8, name="one_layer")
ONE_OPTIMIZER = keras.optimizers.Adam(0.01)


def norm_in_condition():
    norm = layers.BatchNormalization(synchronized=True, name="conditional")
    norm.build((None, 8))

    def condition(x):
        return tf.cond(tf.reduce_sum(x) > -1e9, lambda: norm(x, training=True), lambda: x)

    return compiled(behind_hidden(layers.Lambda(condition, output_shape=lambda shape: shape)))


class UnseededNoise(layers.Layer):
    """Draws its noise from NumPy as it is made."""

    draw = np.random.default_rng()

    def call(self, x, training=False):
        return x + self.draw.normal() if training else x


def norm():
    return layers.BatchNormalization(name="norm")


# Data


def unseeded_data():
    return np.random.default_rng().normal(size=X.shape), Y


class Augmented(keras.utils.PyDataset):
    """Adds noise that is drawn anew each time a batch is read."""

    def __init__(self):
        super().__init__()
        self.noise = np.random.default_rng()

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return X[rows] + self.noise.normal(size=(8, FEATURES)), Y[rows]


def of_layer(layer, **changes):
    return {"build": lambda: compiled(behind_hidden(layer())), **changes}


def of_step(step, **changes):
    return {"build": lambda: compiled(behind_hidden(kind=step), metrics=None), **changes}


# What each of these computes from the whole batch is the same on any number of replicas.
OF_THE_BATCH = {
    "centered": Broken(**of_layer(Centered)),
    "centered between layers": Broken(build=centered_between_layers),
    "centered in call": Broken(build=lambda: compiled(CenteredInCall())),
    "stored rows": Broken(
        build=lambda: compiled(behind_hidden(Stores(name="stores"), kind=ReadsStored)),
    ),
    "batch norm by hand": Broken(**of_layer(OwnBatchNorm)),
    "in-batch attention": Broken(**of_layer(AgainstOthers)),
    "plain batch norm": Broken(**of_layer(norm), options={"synchronize": False}),
    "stateful draws": Broken(**of_layer(StatefulNoise)),
    "numpy function": Broken(**of_layer(PythonFunction)),
    "largest seen": Broken(**of_layer(LargestSeen)),
    "noise for half": Broken(**of_layer(HalfNoise)),
    "largest added": Broken(**of_layer(LargestAdded)),
    "spread of an activity": Broken(
        build=lambda: compiled(
            behind_hidden(layers.Dense(4, activity_regularizer=SpreadOfActivity()))
        ),
    ),
    "largest error": Broken(**of_step(LargestError)),
    "hardest half": Broken(**of_step(HardestHalf)),
    "pairs": Broken(**of_step(OfPairs)),
    "clipped by hand": Broken(**of_step(ClippedByHand)),
    "clipped by hand, slowly": Broken(  # its updates are smaller than 1e-4
        build=lambda: compiled(
            behind_hidden(layers.Dense(8, dtype="float32"), kind=ClippedByHand),
            keras.optimizers.SGD(2e-5),
            metrics=None,
        ),
    ),
    "sum in a loop": Broken(**of_step(SumInLoop)),
    "sum, eagerly": Broken(
        build=lambda: compiled(behind_hidden(kind=SummedStep), metrics=None, run_eagerly=True),
    ),
    "norm kept": Broken(**of_step(KeepsNorm)),
    "opaque step": Broken(**of_step(OpaqueStep)),
    "step in a condition": Broken(**of_step(StepsSometimes)),
    "norm in a condition": Broken(build=norm_in_condition),
    "largest metric": Broken(
        build=lambda: compiled(behind_hidden(), metrics=[Largest()]),
    ),
    "metric that merges wrongly": Broken(
        build=lambda: compiled(behind_hidden(CenteredByAll()), metrics=[LatestByLargest()]),
    ),
    "one of two reductions gathered": Broken(**of_layer(ScaledByOwn)),
    "optimizer in Python": Broken(build=lambda: compiled(behind_hidden(), PythonMomentum(0.1))),
}

BROKEN = {
    "bias before norm": Broken(build=bias_before_norm, cause="rounding_grows"),
    "python draws": Broken(**of_layer(PythonNoise), cause="python_draws", line="random.uniform"),
    "path dropped by Python": Broken(
        **of_layer(DropsPath), cause="python_draws", line="random.random() < 2"
    ),
    "counter": Broken(**of_layer(CountedCalls), cause="python_attribute", line="self.calls"),
    "fraction of a counter": Broken(
        **of_layer(FadingNoise), cause="python_draws", line="self.calls"
    ),
    "float32 inside": Broken(
        **of_layer(Float32Product), cause="float32_values", line='"float32"', equal=True
    ),
    "strategy of its own": Broken(
        build=in_own_strategy, cause="strategy_in_build", line="tf.distribute.OneDeviceStrategy("
    ),
    "optimizer that counts": Broken(
        build=lambda: compiled(behind_hidden(), CountingOptimizer(0.1)),
        cause="optimizer_state",
        line="/ self.updates",
    ),
    "random weights": Broken(
        build=random_weights, cause="build_without_seed", line="default_rng()"
    ),
    "made once": Broken(build=made_once, cause="module_level_model", line="def made_once"),
    "layer made once": Broken(
        build=lambda: compiled(behind_hidden(ONE_LAYER)),
        cause="module_level_model",
        line="ONE_LAYER = layers.Dense",
    ),
    "optimizer made once": Broken(
        build=lambda: compiled(behind_hidden(), ONE_OPTIMIZER),
        cause="module_level_model",
        line="ONE_OPTIMIZER = keras",
    ),
    "noise of NumPy": Broken(
        **of_layer(UnseededNoise), cause="draws_without_seed", line="default_rng()"
    ),
    "unseeded data": Broken(
        build=lambda: compiled(behind_hidden()),
        data=unseeded_data,
        cause="data_without_seed",
        line="default_rng()",
    ),
    "augmented anew": Broken(
        build=lambda: compiled(behind_hidden()),
        data=Augmented,
        cause="data_differ_each_time",
        line="default_rng()",
    ),
}
assert kdist  # the strategy's module is imported before Keras
