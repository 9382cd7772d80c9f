"""What metrics keep: each replica a part of the global batch's."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..ops.collectives import all_reduce_sum
from .kinds import Kind
from .replica_batch import ReplicaBatch


class MetricState:
    """What this replica adds to metrics, and what all replicas have added.

    Args:
        part: This replica's.
    """

    def __init__(self, part: ReplicaBatch) -> None:
        self._part = part

    def added(self, value: Any) -> Any:
        """This replica's summand of what is added to a metric's state.

        A mean over its samples counts by their share, and what is the same everywhere, such as 1
        for a batch, on the first replica alone.
        """
        part = self._part
        kind = part.reader.kind(value)
        if kind is Kind.MEAN:
            return part.weight_by_fraction(value)
        constant = tf.get_static_value(value)
        # Of a known size, the number of samples is a constant too.
        is_count = constant is not None and (np.any(constant != 1) or part.known_rows == 1)
        if kind is Kind.SAME and not is_count and part.replica:
            return tf.zeros_like(value)
        return value

    def is_counted(self, data: Any) -> Any:
        """Whether a metric on this replica counts what it is updated with."""
        if self._is_shared(data):
            return self._part.replica == 0
        return self._part.is_nonempty() if self._part.may_be_empty else True

    def _is_shared(self, data: Any) -> bool:
        """Whether rows are the same on every replica, such as gathered ones."""
        rows = [x for x in keras.tree.flatten(data) if isinstance(x, tf.Tensor) and x.shape.rank]
        if tf.executing_eagerly() or not rows:
            return False
        return all(self._part.reader.kind(leaf) is Kind.SAME for leaf in rows)

    def all_reduce(self, variables: list[Any], merge: Any) -> list[Any]:
        """The state of a metric over all replicas; `merge` is its `merge_replicas` or `None`."""
        own = [tf.convert_to_tensor(variable.value) for variable in variables]
        if merge is None:
            kept = [self._of_kept(v, o) for v, o in zip(variables, own, strict=True)]
            merged = all_reduce_sum(kept)
        else:
            rows = all_reduce_sum([self._part.at_own_place(value) for value in own])
            merged = [merge(v, row) for v, row in zip(variables, rows, strict=True)]
        return [self._part.mark(tf.identity(value), "SAME") for value in merged]

    def _of_kept(self, variable: keras.Variable, own: Any) -> Any:
        if variable.aggregation == "mean":
            return own / self._part.replicas
        if variable.aggregation == "only_first_replica" and self._part.replica:
            return tf.zeros_like(own)
        return own
