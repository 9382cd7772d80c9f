"""The batch of the step that this thread traces: what the patches of Keras ask."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol


class ActiveBatch(Protocol):
    """A replica's part of a global batch, and how what is computed from it counts in the whole."""

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
