"""Norms of gradients over small and large batches, measured while a model trains."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..ops.stateless import mean_loss, stateless_pass
from ..spmd.rules.kernels import part_norms, squared_norm
from .optimizer_calls import Apply, with_apply

FIELDS = (
    "small_squared_norms",
    "small_inverse_sizes",
    "small_count",
    "large_squared_norms",
    "large_inverse_sizes",
    "large_count",
)
"""Sums over measurements: |gradient|² of small batches, 1 / their samples, and their number; then
the same for large batches. A large batch is the global batch, a small one is the part of a replica,
or on one replica a half (B_big and B_small in McCandlish et al. 2018, appendix A.1)."""


class GradientNorms:
    """Exponentially decaying sums of `FIELDS`, on the model's devices.

    Args:
        model: A compiled model made under a strategy.
        smoothing: Decay of the sums at each measurement, at least 0 and below 1.
        every: Steps between measurements on one replica, which has to compute the gradients of two
            half batches in addition to those of its step.
        first_step: Update of the optimizer at which the first measurement is due; by default its
            present one.
    """

    def __init__(
        self, model: keras.Model, *, smoothing: float, every: int, first_step: int | None = None
    ) -> None:
        self.smoothing = smoothing
        self.every = every
        self.first_step = int(_updates(model)) if first_step is None else first_step
        self._strategy = model.distribute_strategy
        with self._strategy.scope():
            self._sums = tf.Variable(tf.zeros(len(FIELDS), "float64"), trainable=False)

    def add(self, values: Sequence[Any], due: Any = True) -> None:
        """Add a measurement, if it is due."""
        new = tf.stack([tf.cast(v, "float64") for v in values])
        updated = self.smoothing * self._sums + new
        # A gradient that overflowed is skipped, as LossScaleOptimizer skips its step.
        due = tf.logical_and(due, tf.reduce_all(tf.math.is_finite(new)))
        self._sums.assign(tf.where(due, updated, self._sums))

    def read(self) -> list[float]:
        """Return the sums, in the order of `FIELDS`."""
        return [float(value) for value in self._sums.numpy()]

    def restore(self, sums: Sequence[float]) -> None:
        """Continue from the result of `read`, on any number of replicas."""
        self._sums.assign(sums)


def measure_parts(
    norms: GradientNorms, model: keras.Model, step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap a step that will be divided over replicas to measure the gradients of their parts."""

    def replace(data: Any, apply: Apply) -> Apply:
        rows = tf.convert_to_tensor(keras.tree.flatten(data)[0])

        def measured_apply(gradients: list[Any], variables: Any) -> Any:
            known = [tf.convert_to_tensor(g) for g in gradients if g is not None]
            scale = tf.square(_loss_scale(model))
            small = part_norms(rows, *known)
            large = tf.stack([_squared_norm(known) / scale, 1 / tf.shape(rows)[0], 1.0]) * small[2]
            norms.add([small[0] / scale, small[1], small[2], *tf.unstack(large)])
            return apply(gradients, variables)

        return measured_apply

    return with_apply(model, step, replace)


def measure_halves(
    norms: GradientNorms, model: keras.Model, step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap the step of one replica to measure both halves of every `norms.every`-th batch."""

    def measured_step(data: Any) -> Any:
        steps = _updates(model) - norms.first_step
        due = tf.equal(steps % norms.every, 0)
        rows = tf.shape(keras.tree.flatten(data)[0])[0]
        due = tf.logical_and(due, rows > 1)
        nothing = [tf.zeros((), "float64")] * len(FIELDS)
        norms.add(
            tf.cond(due, lambda: _measurement_of_halves(model, data, rows), lambda: nothing), due
        )
        return step(data)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(measured_step)
    return unconverted


def _measurement_of_halves(model: keras.Model, data: Any, rows: Any) -> list[Any]:
    def gradients_of(half: slice) -> list[Any]:
        half_batch = keras.tree.map_structure(
            lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf)[half], data
        )
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = mean_loss(model, half_batch, training=True)
        gradients = tape.gradient(loss, weights)
        return [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    middle = rows // 2
    with stateless_pass(
        model
    ) as weights:  # one pass for both halves, so that their dropout differs
        gradients = [gradients_of(half) for half in (slice(None, middle), slice(middle, None))]
    counts = [tf.cast(count, "float64") for count in (middle, rows - middle)]
    total = counts[0] + counts[1]
    first, second = (count / total for count in counts)
    whole_batch = [
        tf.cast(first, a.dtype) * a + tf.cast(second, a.dtype) * b
        for a, b in zip(*gradients, strict=True)
    ]
    return [
        _squared_norm(gradients[0]) + _squared_norm(gradients[1]),
        1 / counts[0] + 1 / counts[1],
        tf.constant(2, "float64"),
        _squared_norm(whole_batch),
        1 / total,
        tf.constant(1, "float64"),
    ]


def _squared_norm(gradients: Sequence[Any]) -> Any:
    known = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    return tf.add_n([squared_norm(g) for g in known])


def _updates(model: keras.Model) -> Any:
    # A variable; with gradient accumulation, where an update takes several steps, a tensor.
    return tf.cast(tf.convert_to_tensor(model.optimizer.iterations), "int64")


def _loss_scale(model: keras.Model) -> Any:
    return tf.cast(model.optimizer.scale_loss(tf.ones(())), "float64")
