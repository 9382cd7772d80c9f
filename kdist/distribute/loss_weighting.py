"""How what is computed from a replica's samples counts in the global batch's loss."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum
from .kinds import Kind, Term
from .replica_batch import ReplicaBatch


class LossWeighting:
    """Keras's rules for losses, for a part of the batch.

    Args:
        part: This replica's.
        warn: Takes a number that no replica knows its part of.
    """

    def __init__(self, part: ReplicaBatch, warn: Callable[[Any], None]) -> None:
        self._part = part
        self._warn = warn

    def rescale(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """From `loss`, the values of this replica reduced, to its part in the global batch's."""
        if not len(values.shape):
            return loss  # computed anew, on the global batch
        if len(loss.shape):
            return loss  # a value for each sample
        if reduction == "sum":
            return loss * self._scale(loss.dtype)
        if reduction == "mean_with_sample_weight":
            weight = _upstream.effective_sample_weight(sample_weight, mask, loss.dtype, reduction)
        else:
            weight = mask
        if weight is None:
            return loss
        divisor = self._part.zero_if_empty(tf.reduce_sum(tf.cast(weight, "float64")))
        total = self._part.all_reduce_sum(tf.stop_gradient(divisor))
        fraction = tf.math.divide_no_nan(divisor, total)
        return loss * tf.cast(fraction * self._part.inverse_fraction, loss.dtype)

    def rescale_added(self, loss: Any) -> Any:
        """The same for what a layer added by `add_loss`; Keras adds up the values of a vector."""
        if not len(loss.shape):
            return self.rescale_or_warn(loss)
        if tf.executing_eagerly():
            rows = self._part.static_rows
            is_sum = bool(rows) and loss.shape[0] % rows == 0
        else:
            is_sum = self._part.reader.kind(loss) in (Kind.ROWS, Kind.SUM)
        return loss * self._scale(loss.dtype) if is_sum else loss

    def rescale_number(self, number: Any) -> Any | None:
        """A scalar such that the replicas' mean by their share of the samples is the batch's.

        `None` where no scalar of this replica has a part in the batch's.
        """
        parts = self._terms(number)
        kinds = {part.kind for part in parts}
        if kinds & {Kind.OTHER, Kind.ROWS}:
            return None
        if not kinds & {Kind.SUM, Kind.COUNT}:
            return number
        scale = self._scale(number.dtype)
        return tf.add_n(
            [
                part.tensor
                * tf.cast(part.factor, number.dtype)
                * (scale if part.kind in (Kind.SUM, Kind.COUNT) else 1)
                for part in parts
            ]
        )

    def rescale_or_warn(self, number: Any) -> Any:
        """As `rescale_number`; the number itself, and a warning, where there is none."""
        rescaled = self.rescale_number(number)
        if rescaled is None:
            self._warn(number)
        return number if rescaled is None else rescaled

    def weighted_terms(self, target: Any) -> list[tuple[Any, Any]]:
        """What to take the gradient of, and how each counts in the global batch's."""
        if len(target.shape):
            return [(target, tf.ones_like(target))]
        parts = self._terms(target)
        if any(part.kind is Kind.OTHER for part in parts):
            self._warn(target)
        return [(part.tensor, self._weight(part)) for part in parts]

    def mean(self, values: Sequence[Any]) -> list[Any]:
        """The numbers that the global batch has, from those that a step logs for its part of it."""
        values = [tf.convert_to_tensor(v) for v in values]
        means = all_reduce_sum([self._summand(value) for value in values])
        return [
            m if v.dtype.is_floating else tf.cast(tf.round(m), v.dtype)
            for m, v in zip(means, values, strict=True)
        ]

    def warn(self, number: Any) -> None:
        """Warn of a number that no replica knows its part of."""
        self._warn(number)

    @contextlib.contextmanager
    def holding_warnings(self) -> Iterator[list[Any]]:
        """Inside, numbers that would be warned of are put into a list."""
        held: list[Any] = []
        before, self._warn = self._warn, held.append
        try:
            yield held
        finally:
            self._warn = before

    def _scale(self, dtype: Any) -> Any:
        return tf.cast(self._part.inverse_fraction, dtype)

    def _weight(self, term: Term) -> Any:
        part = self._part
        weight = part.is_nonempty() if term.kind is Kind.SUM else part.fraction()
        weight = tf.cast(weight, term.tensor.dtype)
        return weight * tf.cast(term.factor, weight.dtype)

    def _terms(self, number: Any) -> Sequence[Term]:
        if tf.executing_eagerly():  # leaves no graph to read
            return [Term(number, 1.0, Kind.MEAN)]
        return self._part.reader.terms(number)

    def _summand(self, value: Any) -> Any:
        # Whole numbers are averaged as others are, and rounded.
        value = value if value.dtype.is_floating else tf.cast(value, "float64")
        value = value if len(value.shape) else self.rescale_or_warn(value)
        return self._part.zero_if_empty(self._part.weight_by_fraction(value))
