"""Norms of gradients over parts of a batch and over the whole, gathered while a model trains."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..ops.stateless import mean_loss, traceless

FIELDS = ("part", "inverse_part", "parts", "whole", "inverse_whole", "wholes")
"""Sums over measurements: |gradient|² of parts of a batch, 1 / their samples, and how many parts;
then the same of whole batches."""


class GradientNorms:
    """Fading sums of `FIELDS`, on the model's devices.

    Args:
        model: A model made under a strategy, and its optimizer's present step.
        smoothing: What is kept of the sums at each measurement, from 0 to below 1.
        every: On one replica, which has to compute the gradients of two half batches besides its
            own step's: the steps from one measurement to the next.
    """

    def __init__(self, model: keras.Model, *, smoothing: float, every: int) -> None:
        self.smoothing = smoothing
        self.every = every
        self.first_step = int(_updates(model))
        with model.distribute_strategy.scope():
            # Every replica adds to its own, without a collective; reading adds them up.
            self._sums = tf.Variable(
                tf.zeros(len(FIELDS), "float64"),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def add(self, values: Sequence[Any], due: Any = True) -> None:
        """Take one replica's measurement in, if it is due."""
        new = tf.stack([tf.cast(v, "float64") for v in values])
        faded = self.smoothing * self._sums + new
        # A gradient that overflowed is skipped, as its step is by a LossScaleOptimizer.
        due = tf.logical_and(due, tf.reduce_all(tf.math.is_finite(new)))
        self._sums.assign(tf.where(due, faded, self._sums))

    def read(self) -> list[float]:
        """The sums over replicas, by `FIELDS`."""
        return [float(value) for value in self._sums.read_value().numpy()]

    def restore(self, sums: Sequence[float]) -> None:
        """Go on from what `read` returned."""
        self._sums.assign(tf.constant(sums, "float64"))


def observe_replica(
    norms: GradientNorms,
    model: keras.Model,
    own: Sequence[Any],
    summed: Sequence[Any],
    samples: Any,
    share: Any,
) -> None:
    """Measure a step of several replicas, on each of them.

    Args:
        norms: What takes the measurement in.
        model: The model that is trained.
        own: This replica's summands of the global gradient.
        summed: The global gradient.
        samples: This replica's.
        share: This replica's samples as a fraction of the global batch's.
    """
    scale = _loss_scale(model)
    filled = tf.cast(samples > 0, "float64")
    own_norm = tf.where(samples > 0, _squared_norm(own), 0)
    norms.add(
        [
            # A summand is the mean over the replica's samples, times the share.
            tf.math.divide_no_nan(own_norm, tf.square(share * scale)),
            tf.math.divide_no_nan(filled, samples),
            filled,
            filled * _squared_norm(summed) / tf.square(scale),
            tf.math.divide_no_nan(share, samples),
            filled,
        ]
    )


def observing_halves(
    norms: GradientNorms, model: keras.Model, step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """The step of one replica, with the gradients of both halves of its batch now and then."""

    def observing(data: Any) -> Any:
        steps = _updates(model) - norms.first_step
        due = tf.equal(steps % norms.every, 0)
        rows = tf.shape(keras.tree.flatten(data)[0])[0]
        due = tf.logical_and(due, rows > 1)
        nothing = [tf.zeros((), "float64")] * len(FIELDS)
        norms.add(tf.cond(due, lambda: _of_halves(model, data, rows), lambda: nothing), due)
        return step(data)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(observing)
    return unconverted


def _of_halves(model: keras.Model, data: Any, rows: Any) -> list[Any]:
    def gradients_of(half: slice) -> list[Any]:
        part = keras.tree.map_structure(
            lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf)[half], data
        )
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = mean_loss(model, part, training=True)
        found = tape.gradient(loss, weights)
        return [tf.convert_to_tensor(gradient) for gradient in found if gradient is not None]

    middle = rows // 2
    with traceless(model) as weights:  # one for both, so that dropout draws differently
        gradients = [gradients_of(half) for half in (slice(None, middle), slice(middle, None))]
    counts = [tf.cast(count, "float64") for count in (middle, rows - middle)]
    total = counts[0] + counts[1]
    first, second = (count / total for count in counts)
    whole = [
        tf.cast(first, a.dtype) * a + tf.cast(second, a.dtype) * b
        for a, b in zip(*gradients, strict=True)
    ]
    return [
        _squared_norm(gradients[0]) + _squared_norm(gradients[1]),
        1 / counts[0] + 1 / counts[1],
        tf.constant(2, "float64"),
        _squared_norm(whole),
        1 / total,
        tf.constant(1, "float64"),
    ]


def _squared_norm(gradients: Sequence[Any]) -> Any:
    known = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    return tf.add_n([tf.cast(tf.reduce_sum(tf.square(g)), "float64") for g in known])


def _updates(model: keras.Model) -> Any:
    # A variable, or with accumulation a tensor: several steps are an update then.
    return tf.cast(tf.convert_to_tensor(model.optimizer.iterations), "int64")


def _loss_scale(model: keras.Model) -> Any:
    return tf.cast(model.optimizer.scale_loss(tf.ones(())), "float64")
