"""The batch of the step that this thread traces: what the patches of Keras ask."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from ..errors import UserError


class LossWeighting(Protocol):
    """How what is computed from a replica's samples counts in the global batch's loss."""

    def rescale(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """From `loss`, the values of this replica reduced, to its part in the global batch's."""

    def rescale_added(self, loss: Any) -> Any:
        """The same for what a layer added by `add_loss`."""

    def rescale_number(self, number: Any) -> Any | None:
        """A scalar such that the replicas' mean by their share of the samples is the batch's.

        `None` where no scalar of this replica has a part in the batch's.
        """

    def rescale_or_warn(self, number: Any) -> Any:
        """As `rescale_number`; the number itself, and a warning, where there is none."""

    def weighted_terms(self, target: Any) -> list[tuple[Any, Any]]:
        """What to take the gradient of, and how each counts in the global batch's."""

    def holding_warnings(self) -> contextlib.AbstractContextManager[list[Any]]:
        """Inside, numbers that would be warned of are put into a list."""

    def warn(self, number: Any) -> None:
        """Warn of a number that no replica knows its part of."""


class GradientSums(Protocol):
    """Gradients over replicas."""

    def sum_over_replicas(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients of the global batch; `None` stays where there is none."""


class MetricState(Protocol):
    """What metrics keep, each replica a part of it."""

    def added(self, value: Any) -> Any:
        """This replica's summand of what is added to a metric's state."""

    def is_counted(self, data: Any) -> Any:
        """Whether a metric on this replica counts what it is updated with."""

    def all_reduce(self, variables: list[Any], merge: Any) -> list[Any]:
        """The state of a metric over all replicas; `merge` is its `merge_replicas` or `None`."""


class VariableWrites(Protocol):
    """What a step writes into variables, of which every replica has a copy."""

    def to_be_written(self, value: Any, variable: Any, *, in_layer: bool) -> Any:
        """From what this replica would write, what all replicas write.

        Args:
            value: A tensor.
            variable: The `tf.Variable` that it is written into.
            in_layer: Whether a layer writes it, and not a step.
        """


class RowPlaces(Protocol):
    """Which rows of the global batch a replica has."""

    static_rows: int | None
    """Rows of this replica, where they are known when the step is traced."""
    rows: Any
    """Rows that the layers see: its samples, or 1 where an empty replica is given zeros."""
    first_row: Any
    """Rows of the global batch on the replicas before this one, int64."""
    global_rows: Any
    """Rows of the global batch, int64."""


class ActiveBatch(RowPlaces, Protocol):
    """A replica's part of a global batch, and how what is computed from it counts in the whole."""

    attributes: Any
    """What this replica keeps in the attributes of layers, a `ReplicaAttributes`."""
    graph: Any
    """The graph that the step is traced in."""
    is_own_step: bool
    """Whether the step is one that a user wrote."""
    has_global_results: bool
    """Whether the results of metrics are those of all replicas within the step."""
    draws_by_place: bool
    """Whether random draws follow the sample's place in the global batch."""

    @property
    def losses(self) -> LossWeighting: ...

    @property
    def gradients(self) -> GradientSums: ...

    @property
    def metrics(self) -> MetricState: ...

    @property
    def writes(self) -> VariableWrites: ...

    def is_nonempty(self) -> Any:
        """False where this replica has no sample, and its inputs are not to count."""

    def fraction(self) -> Any:
        """This replica's samples as a fraction of the global batch's."""

    def zero_if_empty(self, value: Any) -> Any:
        """The value, or 0 where this replica has no sample."""

    def all_reduce_sum(self, value: Any) -> Any:
        """The sum over replicas, which gradients flow through."""

    def all_gather(self, tensor: Any) -> Any:
        """The rows of all replicas, which gradients flow through."""

    def mark(self, value: Any, kind: str) -> Any:
        """Note that a tensor is of this kind (`Kind`'s name in `distribute`), and return it."""

    def mark_rows(self, value: Any) -> None:
        """Note that a tensor has a row for each sample, unless it is the same on all replicas."""

    def mixes_samples(self, values: Any) -> bool:
        """Whether values that look like one for each sample are made of several samples."""


# Replicas are traced in threads of their own, so each sees its own batch.
_thread = threading.local()


def active_batch() -> ActiveBatch | None:
    """The batch of this thread's step; `None` outside of a step on several replicas."""
    return getattr(_thread, "batch", None)


@contextlib.contextmanager
def activate(batch: ActiveBatch | None) -> Iterator[None]:
    """Inside, this thread computes a step on `batch`; `None` suspends the one that is active."""
    before = active_batch()
    _thread.batch = batch
    try:
        yield
    finally:
        _thread.batch = before


def present_samples() -> Any:
    """As `ActiveBatch.is_nonempty`; true outside of a step on several replicas."""
    batch = active_batch()
    return batch.is_nonempty() if batch else tf.constant(True)


def check_no_inner_graph(what: str) -> None:
    """Refuse a sum over replicas in a condition, a loop or a function within the step.

    Args:
        what: The name of what would be summed, such as a layer's.

    Raises:
        UserError: The step is traced elsewhere than here.
    """
    batch = active_batch()
    if batch is not None and batch.graph is not tf.compat.v1.get_default_graph():
        raise UserError(
            f"{what} adds up values over replicas inside a condition, a loop or a @tf.function of"
            " the step, where TensorFlow cannot do it: move it out (a batch norm out of tf.cond,"
            " out of an RNN's cell; @tf.function off the train_step, which Keras compiles anyway),"
            " give optimizer.apply what kdist.sum_gradients has summed outside,"
            ' or keep a batch norm to each replica: kdist.convert_batch_norm(model, to="stock")'
        )
