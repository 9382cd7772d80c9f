"""Classifiers of images: adversarial training, and a student with a frozen teacher."""

import keras
import tensorflow as tf
from keras import layers, ops

CLASSES = 4


class AdversarialClassifier(keras.Model):
    """Learns from images that are moved uphill on its loss."""

    def perturbed(self, x, y):
        """Move images along the signs of the loss's gradient (FGSM)."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(x, y, self(x, training=False))
        return ops.clip(x + 0.1 * ops.sign(tape.gradient(loss, x)), 0.0, 1.0)

    def train_step(self, data):
        x, y = data
        x = self.perturbed(x, y)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.logs(y, y_pred, loss)

    def test_step(self, data):
        x, y = data
        x = self.perturbed(x, y)
        y_pred = self(x, training=False)
        return self.logs(y, y_pred, self.compute_loss(x, y, y_pred))

    def logs(self, y, y_pred, loss):
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return self.get_metrics_result()


def adversarial():
    inputs = keras.Input((8, 8, 1))
    x = layers.GaussianNoise(0.1, seed=1)(inputs)
    x = layers.Conv2D(4, 3, strides=2, activation="relu")(x)
    x = layers.Conv2D(6, 3, activation="relu")(x)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    model = AdversarialClassifier(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Distiller(keras.Model):
    """A student that learns from labels and from a frozen teacher, by its own `compute_loss`."""

    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False

    def compile(self, student_loss_fn, distillation_loss_fn, alpha, temperature, **options):
        super().compile(**options)
        self.student_loss_fn, self.distillation_loss_fn = student_loss_fn, distillation_loss_fn
        self.alpha, self.temperature = alpha, temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        softened = ops.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
        loss = self.distillation_loss_fn(softened, ops.softmax(y_pred / self.temperature, axis=1))
        student_loss = self.student_loss_fn(y, y_pred)
        return self.alpha * student_loss + (1 - self.alpha) * loss * self.temperature**2

    def call(self, x, training=False):
        return self.student(x, training=training)


def network(name, filters):
    parts = [
        layers.Conv2D(filters, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.MaxPooling2D(2, strides=1, padding="same"),
        layers.Conv2D(2 * filters, 3, strides=2, padding="same"),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(CLASSES),
    ]
    return keras.Sequential([keras.Input((8, 8, 1)), *parts], name=name)


def distilled():
    model = Distiller(student=network("student", 3), teacher=network("teacher", 6))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
        alpha=0.1,
        temperature=3.0,
    )
    return model
