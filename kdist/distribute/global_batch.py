"""`GlobalBatch`: a replica's part of the global batch, with the rules for losses, metrics etc."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .gradient_sums import GradientSums
from .gradient_transfer import GradientTransfer
from .loss_weighting import LossWeighting
from .metric_state import MetricState
from .replica_batch import ReplicaBatch
from .variable_writes import VariableWrites


class GlobalBatch(ReplicaBatch):
    """The part of the global batch on one replica during a step: the patches' `ActiveBatch`.

    Args:
        data: The step's input on this replica, the model's inputs first.
        counts: Number of samples on each replica, if known before the step runs; or an int64 tensor
            of them.
        transfer: How gradients are sent to other workers.
        is_custom_step: Whether the step is a custom `train_step` or `test_step`.
        has_global_results: Whether the step uses the results of metrics.
        warn: Called with a number that is neither a mean nor a sum over the samples.
        warn_of_gradient: Called with a gradient that was changed, so that the replicas' gradients
            no longer add up.
        warn_of_write: Called with a value that differs between replicas and is written into a
            variable.
        attributes: This replica's tensors in attributes of layers, a `ReplicaAttributes`.
        averaged: Ids of variables that the step averages over replicas at its end.
    """

    def __init__(
        self,
        data: Any,
        counts: Sequence[int] | tf.Tensor | None,
        *,
        transfer: GradientTransfer,
        is_custom_step: bool,
        has_global_results: bool,
        warn: Callable[[Any], None],
        warn_of_gradient: Callable[[Any], None],
        warn_of_write: Callable[[Any], None],
        attributes: Any,
        averaged: frozenset[int],
    ) -> None:
        super().__init__(data, counts, must_not_be_empty=is_custom_step)
        self.is_custom_step = is_custom_step
        self.has_global_results = has_global_results
        self.attributes = attributes
        self.losses = LossWeighting(self, warn)
        self.gradients = GradientSums(
            self, transfer, may_be_changed=is_custom_step, warn=warn_of_gradient
        )
        self.metrics = MetricState(self)
        self.writes = VariableWrites(
            self, is_custom_step=is_custom_step, averaged=averaged, warn=warn_of_write
        )
