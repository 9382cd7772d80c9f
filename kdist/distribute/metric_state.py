"""`MetricState`: the states of metrics over replicas."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..ops.collectives import all_reduce_sum
from .reduction_kinds import Kind
from .replica_batch import ReplicaBatch


class MetricState:
    """Finds what this replica adds to a metric's state, and merges the states of all replicas.

    Args:
        batch: The part of the global batch on this replica.
    """

    def __init__(self, batch: ReplicaBatch) -> None:
        self._batch = batch

    def summand(self, value: Any) -> Any:
        """Return this replica's summand of a value that is added to a metric's state.

        A mean over the samples is weighted by the replica's fraction of them. A value that is the
        same on every replica, such as 1 per batch, is added on the first replica only.
        """
        batch = self._batch
        kind = batch.reader.kind(value)
        if kind is Kind.MEAN:
            return batch.weight_by_fraction(value)
        constant = tf.get_static_value(value)
        # With a known batch size, the number of samples is a constant, too.
        is_count = constant is not None and (np.any(constant != 1) or batch.known_rows == 1)
        if kind is Kind.SAME and not is_count and batch.replica:
            return tf.zeros_like(value)
        return value

    def is_counted(self, data: Any) -> Any:
        """Whether a metric on this replica includes the data that it is updated with."""
        if self._is_shared(data):
            return self._batch.replica == 0
        return self._batch.is_nonempty() if self._batch.may_be_empty else True

    def _is_shared(self, data: Any) -> bool:
        """Whether the rows are the same on every replica, for example gathered rows."""
        rows = [x for x in keras.tree.flatten(data) if isinstance(x, tf.Tensor) and x.shape.rank]
        if tf.executing_eagerly() or not rows:
            return False
        return all(self._batch.reader.kind(leaf) is Kind.SAME for leaf in rows)

    def all_reduce(self, states: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Return the values of metrics' variables over all replicas, by one sum.

        Args:
            states: Variables, each with the `merge_replicas` of its metric, or `None`.
        """
        summands = [
            self._summand(variable, tf.convert_to_tensor(variable.value))
            if merge is None
            else self._batch.in_replica_row(variable.value)
            for variable, merge in states
        ]
        merged = [
            total if merge is None else merge(variable, total)
            for (variable, merge), total in zip(states, all_reduce_sum(summands), strict=True)
        ]
        return [self._batch.mark(tf.identity(value), "SAME") for value in merged]

    def _summand(self, variable: keras.Variable, value: Any) -> Any:
        if variable.aggregation == "mean":
            return value / self._batch.replicas
        if variable.aggregation == "only_first_replica" and self._batch.replica:
            return tf.zeros_like(value)
        return value
