"""Norms of gradients over small and large batches, measured while a model trains."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..ops.stateless import mean_loss, stateless_pass
from ..spmd.rules.kernels import part_norms, squared_norm

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
            # Each replica adds to its local sums without a collective; reading sums over replicas.
            self._sums = tf.Variable(
                tf.zeros(len(FIELDS), "float64"),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def add(self, values: Sequence[Any], due: Any = True) -> None:
        """Add one replica's measurement, if it is due."""
        new = tf.stack([tf.cast(v, "float64") for v in values])
        updated = self.smoothing * self._sums + new
        # A gradient that overflowed is skipped, as LossScaleOptimizer skips its step.
        due = tf.logical_and(due, tf.reduce_all(tf.math.is_finite(new)))
        self._sums.assign(tf.where(due, updated, self._sums))

    def read(self) -> list[float]:
        """Return the sums over replicas, in the order of `FIELDS`."""
        return [float(value) for value in self._sums.read_value().numpy()]

    def read_replicas(self) -> list[list[float]]:
        """Return the sums of each replica of all workers, each of which has to call this."""
        if getattr(self._strategy, "sees_global_batch", False):
            return [self.read()]
        with self._strategy.scope():
            values = _upstream.replica_values(self._strategy, self._sums)
        return [[float(value) for value in sums] for sums in values.numpy()]

    def restore(self, replica_sums: Sequence[Sequence[float]]) -> None:
        """Continue from the result of `read_replicas`, on any number of replicas."""
        replicas = self._strategy.num_replicas_in_sync
        if getattr(self._strategy, "sees_global_batch", False):
            if replica_sums:
                self._sums.assign([sum(values) for values in zip(*replica_sums, strict=True)])
            return
        parts = self._strategy.experimental_local_results(self._sums)
        if replica_sums and len(replica_sums) != replicas:
            total = [sum(values) for values in zip(*replica_sums, strict=True)]
            replica_sums = [total] + [[0.0] * len(total)] * (replicas - 1)
        first = getattr(self._strategy, "worker", 0) * len(parts)
        own = replica_sums[first : first + len(parts)]
        for part, sums in zip(parts, own, strict=bool(replica_sums)):
            part.assign(tf.constant(sums, "float64"))


def measure_replica(
    norms: GradientNorms,
    model: keras.Model,
    local_gradients: Sequence[Any],
    global_gradients: Sequence[Any],
    samples: Any,
    fraction: Any,
) -> None:
    """Add the measurement of a step on several replicas; called on each replica.

    Args:
        norms: The sums to add to.
        model: The model that is trained.
        local_gradients: This replica's summands of the global gradients.
        global_gradients: Their sums over replicas.
        samples: Number of samples on this replica.
        fraction: The same, as a fraction of the global batch.
    """
    scale = _loss_scale(model)
    count = tf.cast(samples > 0, "float64")
    local_norm = tf.where(samples > 0, _squared_norm(local_gradients), 0)
    norms.add(
        [
            # A summand is the mean over the replica's samples, times the fraction.
            tf.math.divide_no_nan(local_norm, tf.square(fraction * scale)),
            tf.math.divide_no_nan(count, samples),
            count,
            count * _squared_norm(global_gradients) / tf.square(scale),
            tf.math.divide_no_nan(fraction, samples),
            count,
        ]
    )


def measure_parts(
    norms: GradientNorms, model: keras.Model, step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Wrap a step that will be divided over replicas to measure the gradients of their parts."""

    def measured_step(data: Any) -> Any:
        optimizer: Any = model.optimizer
        apply = optimizer.apply
        rows = tf.convert_to_tensor(keras.tree.flatten(data)[0])

        def measured_apply(grads: Any, trainable_variables: Any = None) -> Any:
            gradients = list(grads)
            known = [tf.convert_to_tensor(g) for g in gradients if g is not None]
            scale = tf.square(_loss_scale(model))
            small = part_norms(rows, *known)
            large = tf.stack([_squared_norm(known) / scale, 1 / tf.shape(rows)[0], 1.0]) * small[2]
            norms.add([small[0] / scale, small[1], small[2], *tf.unstack(large)])
            return apply(gradients, trainable_variables)

        replaced = vars(optimizer).get("apply")
        object.__setattr__(optimizer, "apply", measured_apply)
        try:
            return step(data)
        finally:
            if replaced is None:
                del vars(optimizer)["apply"]
            else:
                object.__setattr__(optimizer, "apply", replaced)

    unconverted: Callable[[Any], Any] = tf.autograph.experimental.do_not_convert(measured_step)
    return unconverted


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
