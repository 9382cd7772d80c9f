"""Small Keras models, each with one feature that has to survive being split over replicas."""

import keras
from keras import layers, ops


def synchronized():
    return layers.BatchNormalization(synchronized=True)


def mlp(normalization=None, **dense):
    """Six features in, three classes out; `dense` goes to the hidden layer."""
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh", **dense)(inputs)
    if normalization:
        x = normalization()(x)
    return keras.Model(inputs, layers.Dense(3, activation="softmax", name="classes")(x))


def normalized_inputs():
    """Return a model whose first layer computes on the inputs."""
    return keras.Sequential([keras.Input((6,)), synchronized(), classes()])


def sparse_inputs():
    return keras.Sequential([keras.Input((6,), sparse=True), layers.Dense(5), classes()])


def sequential():
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(5, activation="relu"), synchronized(), classes()]
    )


def classes():
    return layers.Dense(3, activation="softmax")


class Subclassed(keras.Model):
    """Unbuilt until its first batch, with a layer that acts differently in training."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(8, activation="tanh")
        self.normalization = synchronized()
        self.out = classes()

    def call(self, x, training=False):
        return self.out(self.normalization(self.hidden(x), training=training))


class CustomObjective(keras.Model):
    """Overrides `compute_loss` with a plain mean, in its older signature."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        target = ops.one_hot(ops.cast(ops.reshape(y, (-1,)), "int32"), 3)
        return ops.mean(ops.square(target - y_pred)) + sum(self.losses)


class CustomLogs(keras.Model):
    """Adds a figure to the logs, computed from a metric."""

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**logs, "doubled": 2 * logs["accuracy"]}


class CustomMetric(keras.Model):
    """Keeps a metric of its own, beside the compiled ones, and logs a whole number."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.confidence = keras.metrics.Mean(name="confidence")

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self.confidence.update_state(ops.max(y_pred, axis=-1))
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**logs, "whole": 3}


def custom_model(model):
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, activation="tanh", kernel_regularizer="l2")(inputs)
    return model(inputs, classes()(hidden))


def nested():
    """A model in a model in a model, the middle one called on two tensors."""
    inner = keras.Sequential([keras.Input((6,)), layers.Dense(6), synchronized()], name="inner")
    middle_in = keras.Input((6,))
    middle = keras.Model(middle_in, layers.ReLU()(inner(middle_in)), name="middle")
    inputs = keras.Input((6,))
    return keras.Model(inputs, classes()(layers.Add()([middle(inputs), middle(-inputs)])))


def shared_layer():
    inputs = keras.Input((6,))
    shared = layers.Dense(6, activation="tanh", kernel_regularizer="l2", activity_regularizer="l2")
    return keras.Model(inputs, classes()(shared(shared(inputs))))


class Pull(keras.layers.Layer):
    """Adds to the loss: a mean over samples, or one value a sample, which Keras sums."""

    def __init__(self, *, per_sample, parts=1):
        super().__init__()
        self.per_sample = per_sample
        self.parts = parts

    def call(self, x):
        parts = ops.reshape(x, (-1, x.shape[-1] // self.parts))
        squares = ops.sum(ops.square(parts), axis=-1)
        self.add_loss(0.01 * (squares if self.per_sample else ops.mean(squares)))
        return x


def added_loss(*, per_sample, parts=1):
    inputs = keras.Input((6,))
    hidden = layers.Dense(8, activation="tanh")(inputs)
    return keras.Model(inputs, classes()(Pull(per_sample=per_sample, parts=parts)(hidden)))


def several_labels():
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Dense(3, activation="sigmoid")(inputs))


def autoencoder():
    """No loss but the added one, no targets."""
    inputs = keras.Input((6,))
    outputs = layers.Dense(6)(layers.Dense(2)(inputs))
    return keras.Model(inputs, Reconstruction()([inputs, outputs]))


class Reconstruction(keras.layers.Layer):
    def call(self, pair):
        self.add_loss(ops.mean(ops.square(pair[0] - pair[1])))
        return pair[1]


def two_ways():
    """Two inputs and two outputs, by name and in order."""
    wide, narrow = keras.Input((6,), name="wide"), keras.Input((2,), name="narrow")
    x = layers.Concatenate()([layers.Dense(6, activation="relu")(wide), narrow])
    kind = layers.Dense(3, activation="softmax", name="kind")(x)
    return keras.Model([wide, narrow], [kind, layers.Dense(1, name="size")(x)])


def dict_heads():
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="relu")(inputs)
    heads = {"kind": layers.Dense(3, activation="softmax", name="kind")(x)}
    return keras.Model(inputs, {**heads, "size": layers.Dense(1, name="size")(x)})


def masked_recurrent(cell):
    inputs = keras.Input((4, 2))
    return keras.Model(inputs, classes()(cell(4)(layers.Masking()(inputs))))


def embedding(*, tagger):
    """Sparse gradients; a tagger's loss has a value and a mask for every token."""
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(10, 4, mask_zero=True)(inputs)
    x = x if tagger else layers.LSTM(4)(x)
    return keras.Model(inputs, classes()(x))


def bag_of_tokens(words=10):
    inputs = keras.Input((5,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(words, 4, mask_zero=True)(inputs))
    return keras.Model(inputs, classes()(x))


def masked_normalization(normalization):
    """Batch norm over the steps of a sequence that its mask lets through."""
    inputs = keras.Input((4, 2))
    x = normalization()(layers.Masking()(inputs))
    return keras.Model(inputs, classes()(layers.GlobalAveragePooling1D()(x)))


def convolutional():
    inputs = keras.Input((6, 6, 1))
    x = layers.SeparableConv2D(3, 3, use_bias=False)(inputs)
    x = layers.MaxPooling2D()(layers.ReLU()(synchronized()(x)))
    x = layers.GroupNormalization(1)(layers.Conv2D(3, 2)(x))
    return keras.Model(inputs, classes()(layers.Flatten()(x)))


def frozen_normalization():
    """A frozen batch norm runs on its moving statistics, the others on the batch's."""
    inputs = keras.Input((6,))
    frozen = layers.BatchNormalization(
        trainable=False, moving_mean_initializer="ones", name="frozen"
    )
    x = synchronized()(layers.Dense(8, activation="tanh")(frozen(inputs)))
    return keras.Model(inputs, classes()(x))


def pretrained():
    """A frozen base under a new head, as fine-tuning starts."""
    inputs = keras.Input((6,))
    base = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="tanh"), synchronized()], name="base"
    )
    base.trainable = False
    return keras.Model(inputs, classes()(base(inputs)))


def spectral():
    """A layer that updates a variable of its own at every training step."""
    inputs = keras.Input((6,))
    x = layers.SpectralNormalization(layers.Dense(8, activation="tanh"))(inputs)
    return keras.Model(inputs, classes()(x))


def plain_normalization():
    return mlp(layers.BatchNormalization)


def float32_head():
    inputs = keras.Input((6,))
    x = layers.Dense(8, activation="tanh")(inputs)
    return keras.Model(inputs, layers.Dense(3, activation="softmax", dtype="float32")(x))
