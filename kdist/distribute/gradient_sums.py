"""`GradientSums`: sum gradients over replicas."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum
from .gradient_transfer import GradientTransfer
from .reduction_kinds import INEXACT, Kind
from .replica_batch import ReplicaBatch


class GradientSums:
    """Sums the replicas' gradients to those of the global batch.

    Args:
        batch: The part of the global batch on this replica.
        transfer: How gradients are sent to other workers.
        may_be_changed: Whether a custom step may have summed or changed the gradients.
        warn: Called with a gradient that was changed, so that the replicas' gradients no longer add
            up.
    """

    def __init__(
        self,
        batch: ReplicaBatch,
        transfer: GradientTransfer,
        *,
        may_be_changed: bool,
        warn: Callable[[Any], None],
    ) -> None:
        self._batch = batch
        self._transfer = transfer
        self._may_be_changed = may_be_changed
        self._warn = warn

    def sum_over_replicas(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Return the gradients of the global batch; missing gradients stay `None`."""
        unsummed = [
            index
            for index, one in enumerate(gradients)
            if one is not None and not self._is_summed(one)
        ]
        if unsummed:
            _upstream.check_no_inner_graph("optimizer.apply")
        overwritten = [i for i in unsummed if _upstream.is_overwritten(variables[i])]
        to_sum = [i for i in unsummed if i not in overwritten]
        results = list(gradients)
        local = [self._zero_if_empty(gradients[index]) for index in to_sum]
        for index, total in zip(to_sum, self._sums(local) if local else [], strict=True):
            results[index] = total
        for index in overwritten:
            # Not a gradient but the variable's next value: with float8, the largest absolute value.
            value = self._batch.zero_if_empty(gradients[index])
            results[index] = tf.reduce_max(all_reduce_sum(self._batch.in_replica_row(value)), 0)
        return results

    def _is_summed(self, gradient: Any) -> bool:
        """Whether a custom step has already summed a gradient; warn if it has changed it."""
        dense = isinstance(gradient, tf.Tensor) and not tf.executing_eagerly()
        if not self._may_be_changed or not dense:
            return False
        kind = self._batch.reader.kind(gradient)
        if kind in INEXACT:
            self._warn(gradient)
        return kind is Kind.SAME

    def _zero_if_empty(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values = self._batch.zero_if_empty(gradient.values)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return self._batch.zero_if_empty(gradient)

    def _sums(self, gradients: list[Any]) -> list[Any]:
        """Sum over replicas; add up slices with the same indices on every replica.

        Keras's optimizers would treat each replica's slice as that of another sample.
        """
        same_rows = [self._has_same_rows(gradient) for gradient in gradients]
        local = [g.values if same else g for g, same in zip(gradients, same_rows, strict=True)]
        return [
            tf.IndexedSlices(total, gradient.indices, gradient.dense_shape) if same else total
            for total, gradient, same in zip(
                self._transfer.sum(local), gradients, same_rows, strict=True
            )
        ]

    def _has_same_rows(self, gradient: Any) -> bool:
        sparse = isinstance(gradient, tf.IndexedSlices)
        return (
            sparse
            and not tf.executing_eagerly()
            and self._batch.reader.kind(gradient.indices) is Kind.SAME
        )
