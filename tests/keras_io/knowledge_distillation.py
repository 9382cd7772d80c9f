"""A student that learns from labels and from a frozen teacher.

Once by its own `compute_loss`, once by its own `train_step`.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SAMPLES, BATCH = 27, 8
CLASSES = 4


def data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(size=(samples, 8, 8, 1)), rng.integers(0, CLASSES, samples)


def classifier(name: str, filters: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(filters, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.MaxPooling2D(2, strides=1, padding="same"),
            layers.Conv2D(2 * filters, 3, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dropout(0.2),
            layers.Dense(CLASSES),
        ],
        name=name,
    )


class Distiller(keras.Model):
    """Computes its own loss; Keras does the rest."""

    def __init__(self, student: keras.Model, teacher: keras.Model) -> None:
        super().__init__()
        self.student = student
        self.teacher = teacher
        self.teacher.trainable = False

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer,
        metrics: list[keras.Metric],
        student_loss_fn: keras.losses.Loss,
        distillation_loss_fn: keras.losses.Loss,
        alpha: float,
        temperature: float,
    ) -> None:
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def distillation_loss(self, x: Any, y_pred: Any) -> Any:
        softened = ops.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
        loss = self.distillation_loss_fn(softened, ops.softmax(y_pred / self.temperature, axis=1))
        return loss * self.temperature**2

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        student_loss = self.student_loss_fn(y, y_pred)
        return self.alpha * student_loss + (1 - self.alpha) * self.distillation_loss(x, y_pred)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.student(x, training=training)


class StepwiseDistiller(Distiller):
    """Writes the step out, and logs both parts of the loss."""

    def compile(self, *args: Any, **options: Any) -> None:
        super().compile(*args, **options)
        self.student_tracker = keras.metrics.Mean(name="student_loss")
        self.distillation_tracker = keras.metrics.Mean(name="distillation_loss")

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self.student(x, training=True)
            losses = self.all_losses(x, y, y_pred)
        weights = self.student.trainable_variables
        self.optimizer.apply(tape.gradient(losses["loss"], weights), weights)
        return self.logs(y, y_pred, losses)

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        y_pred = self.student(x, training=False)
        return self.logs(y, y_pred, self.all_losses(x, y, y_pred))

    def all_losses(self, x: Any, y: Any, y_pred: Any) -> dict[str, Any]:
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss(x, y_pred)
        return {
            "loss": self.alpha * student_loss + (1 - self.alpha) * distillation_loss,
            "student_loss": student_loss,
            "distillation_loss": distillation_loss,
        }

    def logs(self, y: Any, y_pred: Any, losses: dict[str, Any]) -> dict[str, Any]:
        for metric in self.metrics:
            if metric.name in losses:
                metric.update_state(losses[metric.name])
            else:
                metric.update_state(y, y_pred)
        return self.get_metrics_result()


def _made(distiller: type[Distiller]) -> keras.Model:
    model = distiller(student=classifier("student", 3), teacher=classifier("teacher", 6))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
        alpha=0.1,
        temperature=3.0,
    )
    return model


def make() -> keras.Model:
    return _made(Distiller)


def make_with_own_step() -> keras.Model:
    return _made(StepwiseDistiller)
