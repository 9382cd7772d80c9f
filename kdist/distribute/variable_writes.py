"""What a step writes into variables, of which every replica has a copy of its own."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum
from .kinds import Kind, Term
from .replica_batch import ReplicaBatch


class VariableWrites:
    """Keeps the copies of a variable alike.

    Args:
        part: This replica's.
        is_own_step: Whether a user wrote the step, which may write by itself.
        averaged: Identities of variables that the step averages over replicas at its end.
        warn: Takes what is written into a variable and differs by replica.
    """

    def __init__(
        self,
        part: ReplicaBatch,
        *,
        is_own_step: bool,
        averaged: frozenset[int],
        warn: Callable[[Any], None],
    ) -> None:
        self._part = part
        self._is_own_step = is_own_step
        self._averaged = averaged
        self._warn = warn

    def to_be_written(self, value: Any, variable: Any, *, in_layer: bool) -> Any:
        """From what this replica would write into a variable, what all replicas write.

        What is neither a sum nor a mean over the samples stays what it is: within a layer that may
        be meant, elsewhere it is warned of.
        """
        if id(variable) in self._averaged or not (in_layer or self._is_own_step):
            return value
        terms = self._part.reader.terms(value)
        kinds = {term.kind for term in terms}
        if kinds == {Kind.SAME}:
            return value
        if kinds & {Kind.OTHER, Kind.ROWS}:
            if not in_layer:
                self._warn(value)
            return value
        is_outermost = self._part.graph is tf.compat.v1.get_default_graph()
        if in_layer and not is_outermost:
            return value
        _upstream.check_no_inner_graph("variable.assign")
        shared = [term.tensor * _factor(term) for term in terms if term.kind is Kind.SAME]
        own = [self._summand(term) * _factor(term) for term in terms if term.kind is not Kind.SAME]
        return self._part.mark(tf.add_n([*shared, all_reduce_sum(tf.add_n(own))]), "SAME")

    def _summand(self, term: Term) -> Any:
        """This replica's, where means count by their samples."""
        own = self._part.zero_if_empty(term.tensor)
        return self._part.weight_by_fraction(own) if term.kind is Kind.MEAN else own


def _factor(term: Term) -> Any:
    return tf.cast(term.factor, term.tensor.dtype)
