"""Steps, losses, metrics and layers of users' own."""

import keras
import numpy as np
import samples
import small_models as models
import tensorflow as tf
from harness import Case
from keras import layers, ops, optimizers
from loss_cases import squared_error
from variants import ONE_LEFT, plain, uneven


class GuideStep(keras.Model):
    """A step as Keras's guide writes it, with figures of its own in the logs."""

    def loss_of(self, x, y, predictions):
        return self.compute_loss(x=x, y=y, y_pred=predictions)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predictions = self(x, training=True)
            loss = self.loss_of(x, y, predictions)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predictions)
        results = {metric.name: metric.result() for metric in self.metrics}
        return {**results, "own": loss, "error": 1 - results["loss"] ** 0.5}


class Normalizing(optimizers.SGD):
    """Changes the gradients in its `apply`."""

    def apply(self, grads, trainable_variables=None):
        changed = [one / (ops.max(ops.abs(one)) + 1e-3) for one in grads]
        super().apply(changed, trainable_variables)


class SummedByHand(GuideStep):
    """A sum over the samples beside a mean, and a regularizer."""

    def loss_of(self, x, y, predictions):
        errors = squared_error(y, predictions)
        penalty = tf.nn.l2_loss(self.trainable_variables[0])
        return ops.mean(errors) + 0.01 * tf.reduce_sum(errors) - 0.1 * penalty


class OfSums(GuideStep):
    """Numbers computed from sums and means: a root, a masked mean, the balance of two shares."""

    def loss_of(self, x, y, predictions):
        errors, shares = squared_error(y, predictions), ops.softmax(predictions)
        mask = ops.cast(x[:, 0] > 0, errors.dtype)
        masked = tf.reduce_sum(errors * mask) / tf.maximum(tf.reduce_sum(mask), 1)
        chosen = ops.mean(ops.one_hot(ops.argmax(shares, axis=-1), 3), axis=0)
        balances = tf.reshape(chosen * ops.mean(shares, axis=0), (1, 3, 1))
        balance = tf.reduce_sum(tf.squeeze(balances, 0) * [[1.0], [2.0], [3.0]])
        divided = tf.reduce_sum(errors / ops.cast(ops.shape(x)[0], errors.dtype))
        penalty = tf.nn.l2_loss(self.trainable_variables[0])
        root = ops.sqrt(ops.mean(errors) + 0.1 * penalty)
        return root + masked - 0.5 * balance + divided + ops.log(1 + ops.sum(errors))


class GatheredRoot(GuideStep):
    """Neither a mean nor a sum: exact on gathered rows."""

    def loss_of(self, x, y, predictions):
        return ops.sqrt(ops.mean(squared_error(y, predictions)))


class OfManyParts(GuideStep):
    """Means and sums out of a function, a condition, TensorFlow's averages and a long list."""

    @tf.function
    def mean_of(self, errors, factor):
        return factor * tf.reduce_mean(errors)

    def loss_of(self, x, y, predictions):
        errors = squared_error(y, predictions)
        total = tf.reduce_sum(errors)
        weight = tf.convert_to_tensor(self.trainable_variables[0])
        parts = [0.001 * (total if index % 2 else tf.reduce_mean(errors)) for index in range(150)]
        return (
            sum(parts)
            + self.mean_of(errors, tf.constant(0.5, errors.dtype))
            + self.mean_of(tf.square(predictions), tf.reduce_sum(weight))
            + tf.cond(self.optimizer.iterations < 3, lambda: 0.01 * total, lambda: 0.02 * total)
            + tf.nn.compute_average_loss(errors)
            + tf.nn.scale_regularization_loss(tf.nn.l2_loss(weight))
        )


class TwoSteps(GuideStep):
    """Two steps of one optimizer, the second on what the first one left."""

    def train_step(self, data):
        super().train_step(data)
        return super().train_step(data)


class Scaled(GuideStep):
    """As Keras's guide to mixed precision writes it."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.mean(squared_error(y, self(x, training=True)))
            scaled = self.optimizer.scale_loss(loss)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(scaled, weights), weights)
        return {"loss": loss}


class SummedObjective(keras.Model):
    """Overrides `compute_loss` with a sum."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        return 0.01 * ops.sum(squared_error(y, y_pred))


class RootObjective(keras.Model):
    """Overrides `compute_loss` with a root of a mean, and keeps a metric in it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.root = keras.metrics.Mean(name="root")

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        root = ops.sqrt(ops.mean(squared_error(y, y_pred)) + ops.mean(ops.square(x)))
        self.root.update_state(root)
        return loss + root


class DrawingObjective(keras.Model):
    """Hands on what it is given, and computes from draws without a seed."""

    def compute_loss(self, *args, **options):
        loss = super().compute_loss(*args, **options)
        return ops.sqrt(loss + ops.mean(keras.random.uniform(ops.shape(args[2]))))


class PairsObjective(keras.Model):
    """Every sample against every other."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        pairs = ops.expand_dims(y_pred, 1) - ops.expand_dims(y_pred, 0)
        return ops.mean(ops.square(pairs)) + ops.mean(squared_error(y, y_pred))


class SampleBySample(GuideStep):
    """A loss that gives a value a sample, reduced by hand; added losses; logs that are none."""

    def loss_of(self, x, y, predictions):
        loss = keras.losses.SparseCategoricalCrossentropy(reduction="none")
        return ops.mean(loss(y, predictions)) + sum(self.losses)

    def train_step(self, data):
        return {**super().train_step(data), "nothing": None}


def mean_of_errors(model, data):
    """Return the mean of a batch's errors, and its gradients."""
    x, y = data
    with tf.GradientTape() as tape:
        loss = ops.mean(squared_error(y, model(x, training=True)))
    return loss, tape.gradient(loss, model.trainable_variables)


class ClippedByHand(GuideStep):
    """Changes the gradients of the whole batch, with an optimizer kept in a list."""

    def train_step(self, data):
        loss, gradients = mean_of_errors(self, data)
        gradients, norm = tf.clip_by_global_norm(gradients, 0.1)
        self.optimizers[0].apply(gradients, self.trainable_variables)
        return {"loss": loss, "norm": norm}


def clipped_by_hand():
    model = custom(ClippedByHand)
    model.optimizers = [optimizers.Adam(0.01)]
    return model


class AccumulatedByHand(GuideStep):
    """Adds up the gradients of two batches in variables of its own, as tutorials have it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches = tf.Variable(0, trainable=False)
        self.sums = [tf.Variable(tf.zeros_like(w), trainable=False) for w in self.weights_()]
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def weights_(self):
        return [w for w in self.trainable_variables if w.shape]

    def train_step(self, data):
        x, y = data
        self.batches.assign_add(1)
        with tf.GradientTape() as tape:
            loss = ops.mean(squared_error(y, self(x, training=True)))
        for total, gradient in zip(self.sums, tape.gradient(loss, self.weights_()), strict=True):
            total.assign_add(gradient)
        self.seen.assign_add(ops.cast(ops.shape(x)[0], self.seen.dtype))
        tf.cond(self.batches % 2 == 0, self.apply_sums, lambda: None)
        return {"loss": loss, "seen": tf.convert_to_tensor(self.seen)}

    def apply_sums(self):
        self.optimizer.apply([tf.identity(total) for total in self.sums], self.weights_())
        for total in self.sums:
            total.assign(tf.zeros_like(total))


def sample_by_sample(kind):
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, activation="tanh", activity_regularizer="l2")(inputs)
    return kind(inputs, models.classes()(hidden))


class HandingOn(keras.Model):
    def compute_loss(self, *args, **options):
        return super().compute_loss(*args, **options)


class TwiceTheBatch(GuideStep):
    """Both halves of a doubled batch pass a dropout."""

    def loss_of(self, x, y, predictions):
        doubled = self(ops.concatenate([x, -x], axis=0), training=True)
        return ops.mean(squared_error(ops.concatenate([y, y], axis=0), doubled))


class TwoViews(GuideStep):
    """Two views of each sample pass the model as one batch, which is divided again after it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.drop = layers.Dropout(0.5, seed=3)

    def loss_of(self, x, y, predictions):
        both = self(ops.concatenate([x, -x], axis=0), training=True)
        one, other = (self.drop(view, training=True) for view in ops.split(both, 2, axis=0))
        batch, half = ops.shape(x)[0], tf.shape(both)[0] // 2
        errors = squared_error(y, both[:batch]) + squared_error(y, both[half:])
        return ops.mean(errors) + ops.mean(ops.square(one - other))


class BalancedObjective(keras.Model):
    """Weighs samples by the number of samples of their class in the batch."""

    def compute_loss(self, x=None, y=None, y_pred=None, *args, **options):
        classes = ops.cast(ops.reshape(y, (-1,)), "int32")
        weights = tf.gather(1 / (1 + tf.math.bincount(classes, minlength=3)), classes)
        return keras.losses.SparseCategoricalCrossentropy()(y, y_pred, sample_weight=weights)


def masked(y, predictions):
    """A masked mean over the steps of sequences, from a loss object that is not reduced."""
    errors = keras.losses.SparseCategoricalCrossentropy(reduction="none")(y, predictions)
    mask = ops.cast(y > 0, errors.dtype)
    return ops.sum(errors * mask) / ops.maximum(ops.sum(mask), 1)


class Sequences(keras.Model):
    """A subclass, whose dense layer sees rows of sequences of a known number."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(10, 6)
        self.out = layers.Dense(10, activation="softmax")

    def call(self, x):
        return self.out(self.embedding(x))


def copied(count):
    tokens = samples.tokens(count)[0]
    return tokens, tokens


class KnownSizes(keras.Model):
    """A subclass, whose step divides by sizes that are known when it is traced."""

    def __init__(self):
        super().__init__()
        self.out = models.classes()

    def call(self, x):
        return self.out(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            errors = squared_error(y, self(x, training=True))
            both = tf.concat([errors, errors], 0)
            loss = tf.reduce_sum(errors) / tf.cast(tf.shape(x)[0], errors.dtype)
            loss += tf.reduce_sum(errors) / (3 * tf.cast(tf.size(x), errors.dtype))
            loss += tf.nn.compute_average_loss(errors)
            loss += tf.reduce_mean(both[: tf.shape(both)[0] // 2] + both[tf.shape(x)[0] :])
        self.optimizer.apply(
            tape.gradient(loss, self.trainable_variables), self.trainable_variables
        )
        return {"loss": loss}


class Largest(keras.metrics.Metric):
    """The largest value seen: no sum over replicas."""

    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y, predictions, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(predictions)))

    def result(self):
        return self.largest


def root_of_mean(y, predictions):
    return ops.sqrt(ops.mean(squared_error(y, predictions)))


class Contrastive(keras.losses.Loss):
    """Overrides `__call__`, as in-batch losses do."""

    def __call__(self, y, predictions, sample_weight=None):
        logits = ops.matmul(predictions, ops.transpose(predictions))
        alike = ops.cast(ops.equal(ops.reshape(y, (-1, 1)), ops.reshape(y, (1, -1))), logits.dtype)
        return -ops.mean(ops.sum(ops.log_softmax(logits) * alike, axis=-1))


class Endpoint(layers.Layer):
    """Loss and accuracy within a layer, as Keras's guide has it."""

    def __init__(self):
        super().__init__()
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    def call(self, pair):
        logits, targets = pair
        self.add_loss(self.loss(targets, logits))
        self.accuracy.update_state(targets, logits)
        return ops.softmax(logits)


def endpoint():
    x, y = keras.Input((6,), name="x"), keras.Input((), name="y", dtype="int32")
    return keras.Model({"x": x, "y": y}, Endpoint()([layers.Dense(3)(x), y]))


def endpoint_data(count):
    x, y = samples.classes(count)
    return ({"x": x, "y": y},)


class Summed(layers.Layer):
    """Adds a scalar to the loss that is a sum over the samples."""

    def call(self, x):
        self.add_loss(1e-3 * ops.sum(ops.square(x)))
        return x


class Shrunk(layers.Layer):
    """Adds a vector to the loss that has the shape of its weights."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(8,), initializer="ones")

    def call(self, x):
        self.add_loss(0.01 * ops.square(self.scale))
        return x * self.scale


def behind_hidden(layer):
    inputs = keras.Input((6,))
    return keras.Model(inputs, models.classes()(layer()(layers.Dense(8, "tanh")(inputs))))


def penalized():
    dense = layers.Dense(3, "softmax", use_bias=False, kernel_regularizer="l2")
    return keras.Sequential([keras.Input((6,)), dense])


class Kept(keras.Model):
    """Keeps a tensor in an attribute across a synchronized batch norm, and one in a list."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(8, activation="tanh"), models.classes()
        self.normalization = models.synchronized()
        self.kept = None
        self.all = []

    def call(self, x, training=False):
        self.kept = self.hidden(x)
        self.all.append(self.kept)
        normalized = self.normalization(self.kept, training=training)
        return self.out(normalized + self.kept + self.all.pop())


def positions(tokens=True):
    """Looked up with the same indices for every sample.

    The step captures what was looked up, as these are over 128 numbers; fewer become a constant.
    """
    inputs = keras.Input((5,), dtype="int32")
    places = layers.Embedding(5, 32)(ops.arange(5))
    x = layers.Embedding(10, 32)(inputs) + places
    return keras.Model(inputs, models.classes()(layers.GlobalAveragePooling1D()(x)))


def stateful(dropout=0.2):
    inputs = keras.Input(batch_shape=(8, 4, 2))
    x = layers.LSTM(4, stateful=True, dropout=dropout)(inputs)
    return keras.Model(inputs, models.classes()(x))


def custom(kind):
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, activation="tanh")(inputs)
    return kind(inputs, models.classes()(layers.Dropout(0.2)(hidden)))


def of(kind, **changes):
    """Return a case; a single model with an own step is evaluated, as test steps are Keras's."""
    scored = kind is GuideStep or not issubclass(kind, GuideStep)
    return uneven(Case(model=lambda: custom(kind), scored=scored), **changes)


def scaled(**options):
    """Return a case of a step that scales its loss."""

    def make():
        return optimizers.LossScaleOptimizer(optimizers.SGD(0.1, **options))

    return of(Scaled, optimizer=make, compile=lambda: {"metrics": None}, scored=False)


CASES = {
    "custom_step_uneven": of(GuideStep),
    "custom_step_fewer_samples_than_replicas": of(GuideStep, samples=ONE_LEFT, scored=False),
    "custom_step_clipped_and_accumulated": of(
        GuideStep,
        optimizer=lambda: optimizers.Adam(
            0.01, global_clipnorm=0.1, gradient_accumulation_steps=2, use_ema=True
        ),
        scored=False,
    ),
    "custom_step_batch_norm": uneven(
        Case(
            model=lambda: GuideStep(
                inputs := keras.Input((6,)),
                models.classes()(models.synchronized()(layers.Dense(8)(inputs))),
            )
        )
    ),
    "custom_step_sum_uneven": of(SummedByHand),
    "custom_step_of_sums_uneven": of(OfSums, samples=ONE_LEFT),
    "custom_step_gathered_uneven": of(GatheredRoot),
    "custom_step_in_known_sizes": of(SummedByHand, feed=samples.dropping_dataset),
    "custom_step_of_many_parts_uneven": of(OfManyParts, samples=ONE_LEFT),
    "custom_step_twice": of(TwoSteps),
    "custom_step_scaled": scaled(),
    "custom_step_scaled_and_clipped_uneven": scaled(clipnorm=0.05),
    "custom_step_scaled_and_accumulated": scaled(gradient_accumulation_steps=2),
    "custom_step_centered_optimizer_uneven": of(
        GuideStep, optimizer=lambda: Normalizing(0.1), compile=lambda: {"metrics": None}
    ),
    "custom_step_concatenated_uneven": of(TwiceTheBatch, samples=ONE_LEFT),
    "custom_balanced_objective_uneven": of(BalancedObjective),
    "custom_masked_loss_in_known_sizes": Case(
        model=Sequences,
        data=copied,
        feed=samples.dropping_dataset,
        compile=lambda: {"loss": masked, "metrics": None},
    ),
    "custom_step_two_views_in_known_sizes": of(TwoViews, feed=samples.dropping_dataset),
    "custom_step_divided_by_known_sizes": Case(
        model=KnownSizes,
        feed=samples.dropping_dataset,
        compile=lambda: {"metrics": None},
        scored=False,
    ),
    "custom_step_steps_per_execution": of(
        GuideStep, compile=lambda: {"steps_per_execution": 2}, feed=samples.dataset, scored=False
    ),
    "custom_sum_objective_uneven": of(SummedObjective),
    "custom_root_objective_uneven": of(RootObjective, samples=ONE_LEFT),
    "custom_drawing_objective_uneven": of(DrawingObjective),
    "custom_pairs_objective_uneven": of(PairsObjective),
    "custom_step_sample_by_sample_uneven": uneven(
        Case(model=lambda: sample_by_sample(SampleBySample), scored=False)
    ),
    "custom_step_clipped_by_hand_uneven": uneven(
        Case(model=clipped_by_hand), compile=lambda: {"metrics": None}, scored=False
    ),
    "custom_step_accumulated_by_hand_uneven": of(
        AccumulatedByHand, compile=lambda: {"metrics": None}, scored=False
    ),
    "custom_objective_handed_on_uneven": uneven(Case(model=lambda: sample_by_sample(HandingOn))),
    "custom_sum_objective_eagerly": of(
        SummedObjective,
        compile=lambda: {"run_eagerly": True},
        scored=False,
        fit=lambda: {"epochs": 1},
    ),
    "custom_contrastive_loss_uneven": of(
        keras.Model, compile=lambda: {"loss": Contrastive()}, optimizer=lambda: optimizers.SGD(0.01)
    ),
    "custom_constant_loss": uneven(
        Case(model=penalized), compile=lambda: {"loss": lambda y, p: 0.5, "metrics": None}
    ),
    "custom_largest_metric_uneven": of(keras.Model, compile=lambda: {"metrics": [Largest()]}),
    "custom_root_metric_uneven": of(keras.Model, compile=lambda: {"metrics": [root_of_mean]}),
    "endpoint_fewer_samples_than_replicas": uneven(
        Case(model=endpoint, data=endpoint_data, compile=lambda: {"loss": None, "metrics": None}),
        samples=ONE_LEFT,
    ),
    "added_sum_uneven": uneven(Case(model=lambda: behind_hidden(Summed))),
    "added_weights_in_known_sizes": Case(
        model=lambda: behind_hidden(Shrunk), feed=samples.dropping_dataset
    ),
    "kept_in_attributes_uneven": uneven(Case(model=Kept)),
    "position_embedding": Case(
        model=positions, data=samples.tokens, optimizer=lambda: optimizers.Adam(0.01), scored=False
    ),
    "position_embedding_clipped_uneven": uneven(
        Case(
            model=positions,
            data=samples.tokens,
            optimizer=lambda: optimizers.RMSprop(0.01, global_clipnorm=0.05),
            scored=False,
        )
    ),
    "stateful_rnn": Case(model=stateful, data=samples.series, feed=samples.dropping_dataset),
    "stateful_rnn_without_dropout": Case(
        model=lambda: stateful(0.0), data=samples.series, feed=samples.dropping_dataset
    ),
    "averaged_over_samples_loss": uneven(
        plain, compile=lambda: {"loss": lambda y, p: np.float64(1) * ops.mean(squared_error(y, p))}
    ),
}
