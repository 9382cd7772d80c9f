"""Reductions over replicas: how the local values of a partial tensor make the whole tensor.

Each replica's local value has the shape of the whole tensor. A new reduction is a class or a
constant here, and a rule that returns `Partial` of the reduction. The program gathers local values
and combines them; only for sums, collectives add up the local values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tensorflow as tf

from .rows import Rows

RowsOfReplicas = Callable[[Rows], tf.Tensor]


class Reduction:
    """Base class of reductions, with a name in messages, such as `"max"`."""

    name: str

    def combine(self, stacked: tf.Tensor, rows_of_replicas: RowsOfReplicas) -> tf.Tensor:
        """Return the whole tensor from the stacked local values, shape `(replicas, *shape)`.

        `rows_of_replicas` returns the replicas' numbers of rows of a division, up to a common
        factor, shape `(replicas,)`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Elementwise(Reduction):
    """Reduction of each element on its own."""

    name: str
    reduce: Callable[..., tf.Tensor] = field(repr=False)

    def combine(self, stacked: tf.Tensor, rows_of_replicas: RowsOfReplicas) -> tf.Tensor:
        del rows_of_replicas
        return self.reduce(stacked, 0)


@dataclass(frozen=True)
class Moments(Reduction):
    """Mean and variance, stacked along the first axis, of the replicas' rows."""

    rows: Rows
    name = "moments"

    def combine(self, stacked: tf.Tensor, rows_of_replicas: RowsOfReplicas) -> tf.Tensor:
        means, variances = tf.unstack(stacked, axis=1)
        counts = tf.cast(rows_of_replicas(self.rows), stacked.dtype)
        # The shares are computed before the exchange of the moments: no division follows the
        # exchange. Without rows, the moments are NaN.
        shares = counts / tf.reduce_sum(counts)
        shares = tf.reshape(shares, [-1, *[1] * (len(stacked.shape) - 2)])
        return tf.stack(merge_moments(shares, means, variances))


def merge_moments(
    shares: tf.Tensor, means: tf.Tensor, variances: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Merge the means and biased variances of groups of values, along the first axis.

    `shares` are the groups' shares of all values; mean and variance of a group without values may
    be NaN. Exact for any data: Chan, Golub & LeVeque 1983, "Algorithms for Computing the Sample
    Variance".
    """

    def weighted_sum(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.math.multiply_no_nan(values, shares), 0)

    mean = weighted_sum(means)
    return mean, weighted_sum(variances + tf.math.squared_difference(means, mean))


SUM = Elementwise("add", tf.reduce_sum)
PRODUCT = Elementwise("prod", tf.reduce_prod)
MAXIMUM = Elementwise("max", tf.reduce_max)
MINIMUM = Elementwise("min", tf.reduce_min)
ALL = Elementwise("all", tf.reduce_all)
ANY = Elementwise("any", tf.reduce_any)
ONE_TERM = Elementwise("one term", tf.reduce_sum)
"""One replica has the value, and all other replicas have -0.0, which changes no sum."""
