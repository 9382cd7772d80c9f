"""Adversarial training: each image is moved uphill on its loss before the model learns from it."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SAMPLES, BATCH = 27, 8
CLASSES = 4
STEP = 0.1


def data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(size=(samples, 8, 8, 1)), rng.integers(0, CLASSES, samples)


class AdversarialClassifier(keras.Model):
    def perturbed(self, x: Any, y: Any) -> Any:
        """One step along the signs of the loss's gradient (FGSM)."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(x, y, self(x, training=False))
        return ops.clip(x + STEP * ops.sign(tape.gradient(loss, x)), 0.0, 1.0)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        x = self.perturbed(x, y)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return self.logs(y, y_pred, loss)

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        x = self.perturbed(x, y)
        y_pred = self(x, training=False)
        return self.logs(y, y_pred, self.compute_loss(x, y, y_pred))

    def logs(self, y: Any, y_pred: Any, loss: Any) -> dict[str, Any]:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return self.get_metrics_result()


def make() -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = layers.GaussianNoise(0.1, seed=1)(inputs)
    x = layers.Conv2D(4, 3, strides=2, activation="relu")(x)
    x = layers.Conv2D(6, 3, activation="relu")(x)
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    model = AdversarialClassifier(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model
