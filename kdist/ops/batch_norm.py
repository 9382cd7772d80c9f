"""Batch norm's arithmetic on one replica's values, without layers and strategies.

In these functions a `vector` has one number per channel, shape `(channels,)`, in the accumulation
dtype. Sums over values are computed here, sums over replicas by the caller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from .compilation import can_compute_apart, compute_apart

LONGEST_FUSED_SUM = 32  # the window of XLA's `TreeReductionRewriter`, on CPUs


class Moments(NamedTuple):
    """Count, mean and biased variance of each channel's values, three vectors."""

    count: Any
    mean: Any
    variance: Any


@dataclass(frozen=True)
class Kernels:
    """Batch norm's functions for inputs of one rank, axis and dtype.

    Args:
        rank: Rank of the inputs.
        axis: The channel axis, counted from 0.
        accumulate: Name of the dtype of sums and vectors.
        output: Name of the outputs' dtype.
        epsilon: Added to the variance.
    """

    rank: int
    axis: int
    accumulate: str
    output: str
    epsilon: float

    def local_moments(self, x: Any, mask: Any = None) -> Any:
        """Return count, mean and sum of squared deviations of this replica's values.

        Returns:
            Shape `(3, channels)`; zeros for channels without values.
        """
        channels = x.shape[self.axis]
        values = self._view(x, self.accumulate)
        if mask is None:
            positions = tf.cast(tf.size(x, tf.int64) // channels, values.dtype)
            count = tf.fill([channels], positions)
            mean = tf.math.divide_no_nan(self._sum(values, x), count)
            squares = tf.math.squared_difference(values, self._spread(mean))
        else:
            mask = self._view(mask, tf.bool)
            count = self._sum(tf.cast(mask, values.dtype), x)
            mean = tf.math.divide_no_nan(self._sum(tf.where(mask, values, 0), x), count)
            squares = tf.where(mask, tf.math.squared_difference(values, self._spread(mean)), 0)
        return tf.stack([count, mean, self._sum(squares, x)])

    def normalize(self, x: Any, moments: Moments, gamma: Any, beta: Any) -> Any:
        """Return `gamma * (x - mean) / sqrt(variance + epsilon) + beta`."""
        values = self._view(x, self.accumulate)
        scale = gamma * self._inverse_deviation(moments)
        y = (values - self._spread(moments.mean)) * self._spread(scale) + self._spread(beta)
        return tf.reshape(tf.cast(y, self.output), tf.shape(x))

    def gradient_sums(self, dy: Any, x: Any, moments: Moments) -> Any:
        """Return this replica's gradients of beta and gamma, shape `(2, channels)`."""
        dy, values = self._view(dy, self.accumulate), self._view(x, self.accumulate)
        products = self._sum(dy * (values - self._spread(moments.mean)), x)
        return tf.stack([self._sum(dy, x), products * self._inverse_deviation(moments)])

    def input_gradient(
        self, dy: Any, x: Any, moments: Moments, gamma: Any, sums: Any, mask: Any = None
    ) -> Any:
        """Return the gradient of the inputs, from the sum of `gradient_sums` over all replicas.

        Each value, unless masked, also affects mean and variance, and through them every output
        (Ioffe & Szegedy 2015, section 3).
        """
        dy, values = self._view(dy, self.accumulate), self._view(x, self.accumulate)
        inverse = self._inverse_deviation(moments)
        by_mean, by_deviation = tf.unstack(tf.math.divide_no_nan(sums, moments.count))
        slope = by_deviation * inverse
        by_moments = values * self._spread(slope) + self._spread(by_mean - moments.mean * slope)
        if mask is not None:
            by_moments = tf.where(self._view(mask, tf.bool), by_moments, 0)
        dx = self._spread(gamma * inverse) * (dy - by_moments)
        return tf.reshape(tf.cast(dx, x.dtype), tf.shape(x))

    def forward(self, x: Any, gamma: Any, beta: Any, mask: Any = None) -> tuple[Any, Moments]:
        """Return outputs and moments if there is only one replica."""
        moments = merge(self.local_moments(x, mask)[tf.newaxis])
        return self.normalize(x, moments, gamma, beta), moments

    def backward(
        self, dy: Any, x: Any, moments: Moments, gamma: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        """Return input gradient and `gradient_sums` if there is only one replica."""
        sums = self.gradient_sums(dy, x, moments)
        return self.input_gradient(dy, x, moments, gamma, sums, mask), sums

    @property
    def _channels_last(self) -> bool:
        return self.axis == self.rank - 1

    def _view(self, x: Any, dtype: Any) -> Any:
        """Reshape `x` to (positions, channels) or (positions, channels, positions)."""
        # XLA's reductions over several axes are three times slower than over one.
        x, shape = tf.cast(x, dtype), tf.shape(x)
        if self._channels_last:
            return tf.reshape(x, (-1, x.shape[-1]))
        before, after = (tf.reduce_prod(s) for s in (shape[: self.axis], shape[self.axis + 1 :]))
        return tf.reshape(x, (before, x.shape[self.axis], after))

    def _sum(self, values: Any, x: Any) -> Any:
        """Sum a view of inputs of the shape of `x` over positions, in steps.

        Steps limit the rounding error of long sums. In compiled methods, short ones are faster,
        too.
        """
        if not self._channels_last:
            return tf.reduce_sum(tf.reduce_sum(values, 2), 0)
        channels = values.shape[1]
        if can_compute_apart():
            for length in _sum_lengths(math.prod(x.shape[1:-1])):
                values = tf.pad(values, ((0, -tf.shape(values)[0] % length), (0, 0)))
                sums = tf.reduce_sum(tf.reshape(values, (-1, length, channels)), 1)
                values = compute_apart(sums)
            return tf.reduce_sum(values, 0)
        row = tf.shape(x)[-2] if self.rank > 2 else 1
        rows = tf.reshape(values, (-1, row * channels))
        return tf.reduce_sum(tf.reshape(tf.reduce_sum(rows, 0), (-1, channels)), 0)

    def _spread(self, vector: Any) -> Any:
        return vector if self._channels_last else vector[:, tf.newaxis]

    def _inverse_deviation(self, moments: Moments) -> Any:
        return tf.math.rsqrt(moments.variance + tf.constant(self.epsilon, moments.variance.dtype))


def _sum_lengths(positions: int) -> list[int]:
    """Return the lengths of the sums, level by level, that add up a batch of samples.

    XLA computes short sums together with their summands, but stores the summands of longer ones
    first. Only if a sample's number of positions has a factor without divisors up to
    `LONGEST_FUSED_SUM`, there is one longer sum. Two levels add up the samples, whose number may
    vary, so zeros fill up the last sum. A batch of single positions has no levels.
    """
    if positions == 1:
        return []
    lengths = []
    while positions > 1:
        short = (n for n in range(LONGEST_FUSED_SUM, 1, -1) if positions % n == 0)
        lengths.append(next(short, positions))
        positions //= lengths[-1]
    return [*lengths, LONGEST_FUSED_SUM, LONGEST_FUSED_SUM]


def merge(parts: Any) -> Moments:
    """Merge the replicas' `local_moments`, shape `(replicas, 3, channels)`, to those of all values.

    Exact for any data and any counts, including empty replicas: Chan, Golub & LeVeque 1983,
    "Algorithms for Computing the Sample Variance". Without any values, count, mean and variance are
    0.
    """
    counts, means, squares = tf.unstack(parts, axis=1)
    count = tf.reduce_sum(counts, 0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), count)
    squares = tf.reduce_sum(squares + counts * tf.square(means - mean), 0)
    return Moments(count, mean, tf.math.divide_no_nan(squares, count))


def broadcast_mask(mask: Any, x: Any) -> Any:
    """Broadcast a mask without channel axis to the shape of the inputs, as booleans."""
    return tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(x))
