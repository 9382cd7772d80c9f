"""Layers that draw: by the sample's place in the global batch, so as on one device."""

import keras
import procedures
import samples
import small_models
from harness import Case
from keras import layers
from variants import uneven


def dropping():
    inputs = keras.Input((6,))
    x = layers.GaussianNoise(0.3)(layers.Dense(8, activation="tanh")(inputs))
    x = layers.Dropout(0.4)(small_models.synchronized()(x))
    return keras.Model(inputs, small_models.classes()(x))


class Dropping(small_models.Subclassed):
    def __init__(self):
        super().__init__()
        self.drop = layers.Dropout(0.4)

    def call(self, x, training=False):
        return super().call(self.drop(x, training=training), training=training)


def augmenting():
    x = inputs = keras.Input((6, 6, 1))
    for layer in (
        layers.RandomFlip(),
        layers.RandomTranslation(0.3, 0.3),
        layers.Conv2D(4, 3, activation="tanh"),
        layers.SpatialDropout2D(0.4),
        layers.Flatten(),
    ):
        x = layer(x)
    return keras.Model(inputs, small_models.classes()(x))


def recurrent():
    inputs = keras.Input((4, 2))
    x = layers.Masking()(inputs)
    x = layers.GRU(4, dropout=0.3, recurrent_dropout=0.3)(x)
    return keras.Model(inputs, small_models.classes()(x))


def attentive():
    inputs = keras.Input((4, 2))
    x = layers.Dense(4, activation="tanh")(inputs)
    x = layers.MultiHeadAttention(2, 2, dropout=0.3)(x, x)
    return keras.Model(inputs, small_models.classes()(layers.GlobalAveragePooling1D()(x)))


def accumulating():
    return keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)


CASES = {
    "dropout_uneven": uneven(Case(model=dropping, scored=False)),
    "dropout_subclassed": uneven(Case(model=Dropping, feed=samples.arrays, scored=False)),
    "augmentation_uneven": uneven(Case(model=augmenting, data=samples.images, scored=False)),
    "recurrent_dropout_uneven": uneven(Case(model=recurrent, data=samples.series, scored=False)),
    "attention_dropout_uneven": uneven(
        Case(model=attentive, data=samples.series, scored=False),
        compile=lambda: {"steps_per_execution": 2},
    ),
    "dropout_accumulation": uneven(Case(model=dropping, optimizer=accumulating, scored=False)),
    "dropout_batch_by_batch": uneven(Case(model=dropping, procedure=procedures.batch_by_batch)),
    "dropout_eagerly": uneven(
        Case(model=dropping, scored=False, fit=lambda: {"epochs": 1}),
        compile=lambda: {"run_eagerly": True},
    ),
}
