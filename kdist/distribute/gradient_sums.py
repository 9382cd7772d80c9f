"""Gradients of the global batch, from each replica's summands."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum
from .kinds import Kind
from .replica_batch import ReplicaBatch


class GradientSums:
    """Sums of gradients over replicas.

    Args:
        part: This replica's.
        may_be_summed: Whether a user's step may have summed or changed gradients already.
        warn: Takes a gradient that was changed so that replicas' no longer add up.
    """

    def __init__(
        self, part: ReplicaBatch, *, may_be_summed: bool, warn: Callable[[Any], None]
    ) -> None:
        self._part = part
        self._may_be_summed = may_be_summed
        self._warn = warn

    def sum_over_replicas(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients of the global batch; `None` stays where there is none."""
        present = [
            index
            for index, one in enumerate(gradients)
            if one is not None and not self._is_summed(one)
        ]
        if present:
            _upstream.check_no_inner_graph("optimizer.apply")
        overwritten = [i for i in present if _upstream.is_overwritten(variables[i])]
        summed = [i for i in present if i not in overwritten]
        outcome = list(gradients)
        own = [self._defined(gradients[index]) for index in summed]
        for index, total in zip(summed, self._sums(own) if own else [], strict=True):
            outcome[index] = total
        for index in overwritten:
            # Not a gradient but the variable's next value: with float8 the largest amount seen.
            value = self._part.zero_if_empty(gradients[index])
            outcome[index] = tf.reduce_max(all_reduce_sum(self._part.at_own_place(value)), 0)
        return outcome

    def _is_summed(self, gradient: Any) -> bool:
        """Whether a user's step has summed a gradient already; a changed one is warned of."""
        dense = isinstance(gradient, tf.Tensor) and not tf.executing_eagerly()
        if not self._may_be_summed or not dense:
            return False
        kind = self._part.reader.kind(gradient)
        if kind is Kind.OTHER:
            self._warn(gradient)
        return kind is Kind.SAME

    def _defined(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values = self._part.zero_if_empty(gradient.values)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return self._part.zero_if_empty(gradient)

    def _sums(self, gradients: list[Any]) -> list[Any]:
        """Slices that every replica has are added up: Keras takes each for another sample's."""
        shared = [self._is_of_shared_rows(gradient) for gradient in gradients]
        own = [g.values if alike else g for g, alike in zip(gradients, shared, strict=True)]
        return [
            tf.IndexedSlices(total, gradient.indices, gradient.dense_shape) if alike else total
            for total, gradient, alike in zip(all_reduce_sum(own), gradients, shared, strict=True)
        ]

    def _is_of_shared_rows(self, gradient: Any) -> bool:
        sparse = isinstance(gradient, tf.IndexedSlices)
        return (
            sparse
            and not tf.executing_eagerly()
            and self._part.reader.kind(gradient.indices) is Kind.SAME
        )
