"""`LossWeighting`: weight the replicas' losses so that they add up to the global batch's."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum
from .graph_reader import GraphReader
from .reduction_kinds import INEXACT, Kind, Term
from .replica_batch import ReplicaBatch
from .sum_functions import sum_function


class LossWeighting:
    """Applies Keras's loss reductions to the part of the global batch on one replica.

    Args:
        batch: The part of the global batch on this replica.
        warn: Called with a number that is neither a mean nor a sum over the samples.
    """

    def __init__(self, batch: ReplicaBatch, warn: Callable[[Any], None]) -> None:
        self._batch = batch
        self._warn = warn

    def rescale(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """Rescale this replica's reduced loss to its contribution to the global batch's loss."""
        if not len(values.shape):
            return loss  # will be computed again, on the global batch
        if len(loss.shape):
            return loss  # one value per sample
        if reduction == "sum":
            return loss * self._scale(loss.dtype)
        if reduction == "mean_with_sample_weight":
            weight = _upstream.effective_sample_weight(sample_weight, mask, loss.dtype, reduction)
        else:
            weight = mask
        if weight is None:
            return loss
        divisor = self._batch.zero_if_empty(tf.reduce_sum(tf.cast(weight, "float64")))
        total = self._batch.all_reduce_sum(tf.stop_gradient(divisor))
        fraction = tf.math.divide_no_nan(divisor, total)
        return loss * tf.cast(fraction * self._batch.inverse_fraction, loss.dtype)

    def rescale_added(self, loss: Any) -> Any:
        """Rescale a loss from `add_loss`, where Keras sums the values of a vector."""
        if not len(loss.shape):
            return self.rescale_or_warn(loss)
        if tf.executing_eagerly():
            rows = self._batch.static_rows
            is_sum = bool(rows) and loss.shape[0] % rows == 0
        else:
            kind = self._batch.reader.kind(loss)
            if kind is Kind.PAIRS:
                self.warn(loss)
            is_sum = kind in (Kind.ROWS, Kind.PAIRS, Kind.SUM)
        return loss * self._scale(loss.dtype) if is_sum else loss

    def rescale_number(self, number: Any) -> Any | None:
        """Rescale a scalar so that the replicas' mean, weighted by samples, is the global batch's.

        Returns `None` if the scalar is neither a mean nor a sum over the samples, or may be none:
        then it is to be computed on the global batch.
        """
        return self._rescale(number, self._batch.strict_reader)

    def _rescale(self, number: Any, reader: GraphReader) -> Any | None:
        terms = _terms(number, reader)
        kinds = {term.kind for term in terms}
        if kinds & {*INEXACT, Kind.ROWS}:
            return None
        if not kinds & {Kind.SUM, Kind.COUNT}:
            return number
        scale = self._scale(number.dtype)
        return tf.add_n(
            [
                term.tensor
                * tf.cast(term.factor, number.dtype)
                * (scale if term.kind in (Kind.SUM, Kind.COUNT) else 1)
                for term in terms
            ]
        )

    def rescale_or_warn(self, number: Any) -> Any:
        """Rescale a scalar that cannot be computed again from gathered rows.

        If it is a function of means and sums, such as a root, it is computed from those of the
        global batch, and has the derivative by this replica's. Otherwise there is a warning.
        """
        rescaled = self._rescale(number, self._batch.reader)
        if rescaled is not None:
            return rescaled
        found = self._of_global_sums(number)
        if found is None:
            self.warn(number)
            return number
        value, derivatives = found
        scaled = [
            derivative * (self._scale(part.dtype) if kind in (Kind.SUM, Kind.COUNT) else 1)
            for part, derivative, kind in derivatives
        ]

        @tf.custom_gradient
        def of_parts(*parts: Any) -> Any:
            return tf.identity(value), lambda upstream: [
                tf.cast(upstream, part.dtype) * derivative
                for part, derivative in zip(parts, scaled, strict=True)
            ]

        number = of_parts(*(part for part, _, _ in derivatives)) if scaled else value
        return self._batch.mark(number, "MEAN")

    def weighted_terms(self, target: Any) -> list[tuple[Any, Any]]:
        """Split the target of a gradient into terms, each with its weight in the global batch."""
        if len(target.shape):
            return self._weighted_vector(target)
        weighted: list[tuple[Any, Any]] = []
        for term in _terms(target, self._batch.reader):
            found = self._of_global_sums(term.tensor) if term.kind in INEXACT else None
            if term.kind in INEXACT and found is None:
                self.warn(target)
            parts = found[1] if found else [(term.tensor, 1, term.kind)]
            weighted += self._weighted_parts(parts, term.factor)
        return weighted or [(target, tf.zeros_like(target))]

    def _weighted_vector(self, target: Any) -> list[tuple[Any, Any]]:
        """Return a target of several values, which a tape adds up, with weights."""
        kind = self._batch.reader.kind(target)
        if kind is Kind.PAIRS:
            self.warn(target)
        found = self._of_global_sums(tf.reduce_sum(target)) if kind is Kind.OTHER else None
        if found:
            return self._weighted_parts(found[1], 1)
        weight = self._weight(Term(target, 1, kind)) if kind in (Kind.SAME, Kind.MEAN) else 1
        return [(target, tf.ones_like(target) * weight)]

    def _weighted_parts(
        self, parts: Sequence[tuple[Any, Any, Kind]], factor: Any
    ) -> list[tuple[Any, Any]]:
        return [
            (part, derivative * self._weight(Term(part, factor, kind)))
            for part, derivative, kind in parts
        ]

    def _of_global_sums(self, number: Any) -> tuple[Any, list[tuple[Any, Any, Kind]]] | None:
        """Compute a function of means and sums from those of the global batch.

        Returns:
            The number, and the parts with its derivatives by them; `None` if it is none.
        """
        batch = self._batch
        is_outermost = batch.graph is tf.compat.v1.get_default_graph()
        function = sum_function(number, batch.reader) if is_outermost else None
        if function is None:
            return None
        kinds = [batch.reader.kind(part) for part in function.parts]
        varying = [
            batch.weight_by_fraction(batch.zero_if_empty(part))
            if kind is Kind.MEAN
            else batch.zero_if_empty(part)
            for part, kind in zip(function.parts, kinds, strict=True)
            if kind is not Kind.SAME
        ]
        totals = iter(all_reduce_sum(varying))
        values = [
            part if kind is Kind.SAME else next(totals)
            for part, kind in zip(function.parts, kinds, strict=True)
        ]
        value, derivatives = function.at(values)
        parts = zip(function.parts, derivatives, kinds, strict=True)
        return batch.mark(value, "SAME"), [one for one in parts if one[1] is not None]

    def mean(self, values: Sequence[Any]) -> list[Any]:
        """Average the numbers that a step logs over replicas, to those of the global batch."""
        values = [tf.convert_to_tensor(v) for v in values]
        means = all_reduce_sum([self._summand(value) for value in values])
        return [
            m if v.dtype.is_floating else tf.cast(tf.round(m), v.dtype)
            for m, v in zip(means, values, strict=True)
        ]

    def warn(self, number: Any) -> None:
        """Warn about a number that is neither a mean nor a sum over the samples.

        If it comes from values that depend on several samples each, warn about these.
        """
        reader = self._batch.reader
        symbolic = tf.is_symbolic_tensor(number)
        has_pairs = symbolic and reader.kind(number) is Kind.PAIRS
        self._warn(reader.source_of_pairs(number) if has_pairs else number)

    @contextlib.contextmanager
    def deferred_warnings(self) -> Iterator[list[Any]]:
        """Collect numbers in a list inside the `with` block, instead of warning about them."""
        numbers: list[Any] = []
        before, self._warn = self._warn, numbers.append
        try:
            yield numbers
        finally:
            self._warn = before

    def _scale(self, dtype: Any) -> Any:
        return tf.cast(self._batch.inverse_fraction, dtype)

    def _weight(self, term: Term) -> Any:
        batch = self._batch
        weight = batch.is_nonempty() if term.kind is Kind.SUM else batch.fraction()
        weight = tf.cast(weight, term.tensor.dtype)
        return weight * tf.cast(term.factor, weight.dtype)

    def _summand(self, value: Any) -> Any:
        # Integers are averaged as floats, then rounded.
        value = value if value.dtype.is_floating else tf.cast(value, "float64")
        value = value if len(value.shape) else self.rescale_or_warn(value)
        return self._batch.zero_if_empty(self._batch.weight_by_fraction(value))


def _terms(number: Any, reader: GraphReader) -> Sequence[Term]:
    if tf.executing_eagerly():  # there is no graph to read
        return [Term(number, 1.0, Kind.MEAN)]
    return reader.terms(number)
