"""`ActiveBatch`: the interface of the patches to the step that the current thread traces."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import tensorflow as tf

from ..errors import UserError


class LossWeighting(Protocol):
    """Weights a replica's losses so that they add up to the loss of the global batch."""

    def rescale(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """Rescale this replica's reduced loss to its contribution to the global batch's loss."""

    def rescale_added(self, loss: Any) -> Any:
        """Rescale a loss from `add_loss`."""

    def rescale_number(self, number: Any) -> Any | None:
        """Rescale a scalar so that the replicas' mean, weighted by samples, is the global batch's.

        Returns `None` if the scalar is neither a mean nor a sum over the samples.
        """

    def rescale_or_warn(self, number: Any) -> Any:
        """Rescale a scalar that cannot be computed again; warn if it is no mean and no sum."""

    def weighted_terms(self, target: Any) -> list[tuple[Any, Any]]:
        """Split the target of a gradient into terms, each with its weight in the global batch."""

    def deferred_warnings(self) -> contextlib.AbstractContextManager[list[Any]]:
        """Collect numbers in a list inside the `with` block, instead of warning about them."""

    def warn(self, number: Any) -> None:
        """Warn about a number that is neither a mean nor a sum over the samples."""


class GradientSums(Protocol):
    """Sums gradients over replicas."""

    def sum_over_replicas(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Return the gradients of the global batch; missing gradients stay `None`."""


class MetricState(Protocol):
    """Merges the states of metrics over replicas."""

    def summand(self, value: Any) -> Any:
        """Return this replica's summand of a value that is added to a metric's state."""

    def is_counted(self, data: Any) -> Any:
        """Whether a metric on this replica includes the data that it is updated with."""

    def all_reduce(self, states: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Return the values of metrics' variables over all replicas, by one sum.

        Args:
            states: Variables, each with the `merge_replicas` of its metric, or `None`.
        """


class VariableWrites(Protocol):
    """Keeps the replicas' copies of a variable equal."""

    def synchronize_write(self, value: Any, variable: Any, *, in_layer: bool) -> Any:
        """Return the value that all replicas write instead of this replica's value.

        Args:
            value: This replica's value, a tensor.
            variable: The `tf.Variable` that it is written into.
            in_layer: Whether it is written in a layer's `call`, and not directly in the step.
        """


class RowPlaces(Protocol):
    """The place of a replica's rows in the global batch."""

    static_rows: int | None
    """Rows of this replica; `None` if unknown when the step is traced."""
    rows: Any
    """Rows that layers get: the samples, or 1 if an empty replica gets a row of zeros."""
    first_row: Any
    """Total rows of the replicas before this one, int64."""
    global_rows: Any
    """Rows of the global batch, int64."""


class ActiveBatch(RowPlaces, Protocol):
    """A replica's part of the global batch, with the rules for losses, metrics etc."""

    attributes: Any
    """This replica's tensors in attributes of layers, a `ReplicaAttributes`."""
    graph: Any
    """The graph that the step is traced in."""
    is_custom_step: bool
    """Whether the step is a custom `train_step` or `test_step`."""
    has_global_results: bool
    """Whether metrics give the results of all replicas within the step."""

    @property
    def losses(self) -> LossWeighting: ...

    @property
    def gradients(self) -> GradientSums: ...

    @property
    def metrics(self) -> MetricState: ...

    @property
    def writes(self) -> VariableWrites: ...

    def is_nonempty(self) -> Any:
        """Whether this replica has samples, a boolean tensor."""

    def fraction(self) -> Any:
        """Return this replica's samples as a fraction of the global batch."""

    def zero_if_empty(self, value: Any) -> Any:
        """Replace a value by 0 if this replica has no samples."""

    def all_reduce_sum(self, value: Any) -> Any:
        """Sum over replicas; gradients flow through it."""

    def all_gather(self, tensor: Any) -> Any:
        """Return the rows of all replicas; gradients flow through it."""

    def mark(self, value: Any, kind: str) -> Any:
        """Record the kind of a tensor (a name in `reduction_kinds.Kind`), and return it."""

    def mark_rows(self, value: Any) -> None:
        """Record that a tensor has a row per sample, unless it is the same on all replicas."""

    def kind(self, value: Any) -> str | None:
        """Return how a tensor depends on the samples, a name in `reduction_kinds.Kind`.

        It is `None` if there is no graph to read it from.
        """

    def mixes_samples(self, values: Any) -> bool:
        """Whether values that look like one per sample depend on several samples."""


# Each replica is traced in its own thread, and has its own batch.
_thread = threading.local()


def active_batch() -> ActiveBatch | None:
    """Return the batch of the current thread's step; `None` outside a step on several replicas."""
    return getattr(_thread, "batch", None)


@contextlib.contextmanager
def activate(batch: ActiveBatch) -> Iterator[None]:
    """Make `batch` the active batch of the current thread inside the `with` block."""
    before = active_batch()
    _thread.batch = batch
    try:
        yield
    finally:
        _thread.batch = before


def replica_has_samples() -> Any:
    """Whether this replica has samples, a boolean tensor; true if there is no active batch."""
    batch = active_batch()
    return batch.is_nonempty() if batch else tf.constant(True)


def check_no_inner_graph(what: str) -> None:
    """Reject a sum over replicas inside a condition, a loop or a function of the step.

    Args:
        what: What needs the sum, for example the name of a layer.

    Raises:
        UserError: The current graph is not the step's own graph.
    """
    batch = active_batch()
    if batch is not None and batch.graph is not tf.compat.v1.get_default_graph():
        raise UserError(
            f"{what} needs a sum over replicas inside a condition, a loop or a @tf.function of the"
            " step, where TensorFlow does not support it: move it out (a batch norm out of tf.cond"
            " or an RNN cell; remove @tf.function from train_step, which Keras compiles anyway),"
            " call optimizer.apply with gradients that kdist.sum_gradients has summed outside, or"
            ' do not synchronize the batch norm: kdist.convert_batch_norm(model, to="stock")'
        )
