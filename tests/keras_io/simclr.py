"""Contrastive pretraining: every image against the whole batch's, and a linear probe beside it."""

import keras
import tensorflow as tf
from keras import layers, ops

CLASSES = 4
WIDTH = 6
TEMPERATURE = 0.1


def augmenter(name, zoom, brightness, seed):
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Rescaling(1 / 255),
            layers.RandomFlip("horizontal", seed=seed),
            layers.RandomTranslation(zoom / 2, zoom / 2, seed=seed + 1),
            layers.RandomZoom((-zoom, 0.0), (-zoom, 0.0), seed=seed + 2),
            layers.RandomBrightness(brightness, value_range=(0, 1), seed=seed + 3),
        ],
        name=name,
    )


def encoder():
    parts = [layers.Conv2D(WIDTH, 3, strides=2, activation="elu") for _ in range(2)]
    parts += [layers.Flatten(), layers.Dense(WIDTH, activation="elu")]
    return keras.Sequential([keras.Input((8, 8, 3)), *parts], name="encoder")


def projection_head():
    return keras.Sequential(
        [keras.Input((WIDTH,)), layers.Dense(WIDTH, activation="elu"), layers.Dense(WIDTH)],
        name="projection_head",
    )


class ContrastiveModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.contrastive_augmenter = augmenter("contrastive", zoom=0.5, brightness=0.6, seed=10)
        self.probe_augmenter = augmenter("probe", zoom=0.25, brightness=0.3, seed=20)
        self.encoder = encoder()
        self.projection_head = projection_head()
        self.linear_probe = keras.Sequential([keras.Input((WIDTH,)), layers.Dense(CLASSES)])

    def compile(self, contrastive_optimizer, probe_optimizer):
        super().compile()
        self.contrastive_optimizer = contrastive_optimizer
        self.probe_optimizer = probe_optimizer
        self.probe_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.contrastive_loss_tracker = keras.metrics.Mean(name="c_loss")
        self.contrastive_accuracy = keras.metrics.SparseCategoricalAccuracy(name="c_acc")
        self.probe_loss_tracker = keras.metrics.Mean(name="p_loss")
        self.probe_accuracy = keras.metrics.SparseCategoricalAccuracy(name="p_acc")

    @property
    def metrics(self):
        return [
            self.contrastive_loss_tracker,
            self.contrastive_accuracy,
            self.probe_loss_tracker,
            self.probe_accuracy,
        ]

    def contrastive_loss(self, one, other):
        """Each view has to find its other view among all of the batch (NT-Xent)."""

        one = ops.normalize(one, axis=1)
        other = ops.normalize(other, axis=1)
        similarities = ops.matmul(one, ops.transpose(other)) / TEMPERATURE
        partners = ops.arange(ops.shape(one)[0])
        self.contrastive_accuracy.update_state(partners, similarities)
        self.contrastive_accuracy.update_state(partners, ops.transpose(similarities))
        losses = [
            keras.losses.sparse_categorical_crossentropy(partners, logits, from_logits=True)
            for logits in (similarities, ops.transpose(similarities))
        ]
        return ops.mean(sum(losses)) / 2

    def train_step(self, data):
        images, labels = data

        one = self.contrastive_augmenter(images, training=True)
        other = self.contrastive_augmenter(images, training=True)
        with tf.GradientTape() as tape:
            loss = self.contrastive_loss(
                self.projection_head(self.encoder(one, training=True), training=True),
                self.projection_head(self.encoder(other, training=True), training=True),
            )
        weights = self.encoder.trainable_weights + self.projection_head.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.contrastive_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.contrastive_loss_tracker.update_state(loss)

        images = self.probe_augmenter(images, training=True)
        with tf.GradientTape() as tape:
            logits = self.linear_probe(self.encoder(images, training=False), training=True)
            loss = self.probe_loss(labels, logits)
        weights = self.linear_probe.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.probe_optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.probe_loss_tracker.update_state(loss)
        self.probe_accuracy.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        images, labels = data
        images = self.probe_augmenter(images, training=False)
        logits = self.linear_probe(self.encoder(images, training=False), training=False)
        self.probe_loss_tracker.update_state(self.probe_loss(labels, logits))
        self.probe_accuracy.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics[2:]}


def make():
    model = ContrastiveModel()
    model.compile(
        contrastive_optimizer=keras.optimizers.Adam(0.003),
        probe_optimizer=keras.optimizers.Adam(0.01),
    )
    return model
