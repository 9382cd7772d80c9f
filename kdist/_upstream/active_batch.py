"""The batch of the step that this thread traces: what the patches of Keras ask."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from ..errors import UserError


class ActiveBatch(Protocol):
    """A replica's part of a global batch, and how what is computed from it counts in the whole."""

    graph: Any
    """The graph that the step is traced in."""
    is_own_step: bool
    """Whether the step is one that a user wrote."""
    has_global_results: bool
    """Whether the results of metrics are those of all replicas within the step."""
    draws_by_place: bool
    """Whether random draws follow the sample's place in the global batch."""
    static_rows: int | None
    """Rows of this replica, where they are known when the step is traced."""
    rows: Any
    """Rows that the layers see: `samples`, or 1 where an empty replica is given a row of zeros."""
    first_row: Any
    """Rows of the global batch on the replicas before this one, int64."""
    global_rows: Any
    """Rows of the global batch, int64."""

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

    def mixes_samples(self, values: Any) -> bool:
        """Whether values that look like one for each sample are made of several samples."""

    def mark_rows(self, value: Any) -> None:
        """Note that a tensor has a row for each sample, unless it is the same on all replicas."""

    def holding_warnings(self) -> contextlib.AbstractContextManager[list[Any]]:
        """Inside, numbers that would be warned of are put into a list."""

    def warn(self, number: Any) -> None:
        """Warn of a number that no replica can tell its part of."""

    def weighted_terms(self, target: Any) -> list[tuple[Any, Any]]:
        """What to take the gradient of, and how each counts in the global batch's."""

    def global_gradients(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients summed over replicas."""

    def is_counted(self, data: Any) -> Any:
        """Whether a metric on this replica counts what it is updated with."""

    def all_reduce_state(self, variables: list[Any], merge: Any) -> list[Any]:
        """The state of a metric over all replicas; `merge` is its `merge_replicas` or `None`."""

    def mark(self, value: Any, kind: str) -> Any:
        """Note that a tensor is of this kind (`loss_terms.Kind`'s name), and return it."""

    def zero_if_empty(self, value: Any) -> Any:
        """The value, or 0 where this replica has no sample."""

    def is_nonempty(self) -> Any:
        """False where this replica has no sample, and its inputs are not to count."""

    def fraction(self) -> Any:
        """This replica's samples as a fraction of the global batch's."""

    def all_reduce_sum(self, value: Any) -> Any:
        """The sum over replicas, which gradients flow through."""

    def all_gather(self, tensor: Any) -> Any:
        """The rows of all replicas, which gradients flow through."""


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
            ' or keep a batch norm to each replica: kdist.convert_batch_norm(model, to="stock")'
        )
