"""`VariableWrites`: what a step assigns to variables, of which each replica has a copy."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum
from .reduction_kinds import INEXACT, Kind, Term
from .replica_batch import ReplicaBatch


class VariableWrites:
    """Keeps the replicas' copies of a variable equal.

    Args:
        batch: The part of the global batch on this replica.
        is_custom_step: Whether the step is a custom one, which may assign to variables.
        averaged: Ids of variables that the step averages over replicas at its end.
        warn: Called with a value that differs between replicas and is written into a variable.
    """

    def __init__(
        self,
        batch: ReplicaBatch,
        *,
        is_custom_step: bool,
        averaged: frozenset[int],
        warn: Callable[[Any], None],
    ) -> None:
        self._batch = batch
        self._is_custom_step = is_custom_step
        self._averaged = averaged
        self._warn = warn

    def synchronize_write(self, value: Any, variable: Any, *, in_layer: bool) -> Any:
        """Return the value that all replicas write instead of this replica's value.

        A value that is neither a sum nor a mean over the samples is left as it is: in a layer this
        may be intended, elsewhere there is a warning.
        """
        if id(variable) in self._averaged or not (in_layer or self._is_custom_step):
            return value
        terms = self._batch.reader.terms(value)
        kinds = {term.kind for term in terms}
        if kinds == {Kind.SAME}:
            return value
        if kinds & {*INEXACT, Kind.ROWS}:
            if not in_layer:
                self._warn(value)
            return value
        is_outermost = self._batch.graph is tf.compat.v1.get_default_graph()
        if in_layer and not is_outermost:
            return value
        _upstream.check_no_inner_graph("variable.assign")
        same = [term.tensor * _factor(term) for term in terms if term.kind is Kind.SAME]
        local = [
            self._summand(term) * _factor(term) for term in terms if term.kind is not Kind.SAME
        ]
        return self._batch.mark(tf.add_n([*same, all_reduce_sum(tf.add_n(local))]), "SAME")

    def _summand(self, term: Term) -> Any:
        """Return this replica's summand; means are weighted by samples."""
        value = self._batch.zero_if_empty(term.tensor)
        return self._batch.weight_by_fraction(value) if term.kind is Kind.MEAN else value


def _factor(term: Term) -> Any:
    return tf.cast(term.factor, term.tensor.dtype)
