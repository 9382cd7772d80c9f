"""A replica's part of a global batch, and how what is computed from it counts in the whole."""

from collections.abc import Callable, Sequence
from typing import Any

from .gradient_sums import GradientSums
from .loss_weighting import LossWeighting
from .metric_state import MetricState
from .replica_batch import ReplicaBatch
from .variable_writes import VariableWrites


class GlobalBatch(ReplicaBatch):
    """What a step on this replica computes with: the `ActiveBatch` of the patches.

    Args:
        data: What the step is given on this replica, the model's inputs first.
        counts: Samples of each replica, where that is known before the step runs.
        draws_by_place: Whether random draws follow the sample's place in the global batch.
        is_own_step: Whether a user wrote the step.
        has_global_results: Whether the step computes with the results of metrics.
        warn: Takes a number that no replica knows its part of.
        warn_of_gradient: Takes a gradient that was changed so that replicas' no longer add up.
        warn_of_write: Takes what is written into a variable and differs by replica.
        attributes: What this replica keeps in attributes of layers.
        averaged: Identities of variables that the step averages over replicas at its end.
    """

    def __init__(
        self,
        data: Any,
        counts: Sequence[int] | None,
        *,
        draws_by_place: bool,
        is_own_step: bool,
        has_global_results: bool,
        warn: Callable[[Any], None],
        warn_of_gradient: Callable[[Any], None],
        warn_of_write: Callable[[Any], None],
        attributes: Any,
        averaged: frozenset[int],
    ) -> None:
        super().__init__(data, counts, must_not_be_empty=is_own_step)
        self.draws_by_place = draws_by_place
        self.is_own_step = is_own_step
        self.has_global_results = has_global_results
        self.attributes = attributes
        self.losses = LossWeighting(self, warn)
        self.gradients = GradientSums(self, may_be_summed=is_own_step, warn=warn_of_gradient)
        self.metrics = MetricState(self)
        self.writes = VariableWrites(
            self, is_own_step=is_own_step, averaged=averaged, warn=warn_of_write
        )
