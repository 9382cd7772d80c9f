"""`ReplicaBatch`: the samples of one replica, counted, padded and gathered."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum, differentiable_all_reduce_sum
from .devices import device_type
from .graph_reader import GraphReader
from .reduction_kinds import INEXACT, Kind


class ReplicaBatch:
    """The samples of this replica, and their place in the global batch.

    Args:
        data: The step's input on this replica, the model's inputs first.
        counts: Number of samples on each replica, if known before the step runs; or an int64 tensor
            of them.
        must_not_be_empty: Whether the step may fail without samples, so that an empty replica gets
            a row of zeros. With oneDNN's kernels it always gets one.
    """

    def __init__(
        self, data: Any, counts: Sequence[int] | tf.Tensor | None, *, must_not_be_empty: bool
    ) -> None:
        self.graph = tf.compat.v1.get_default_graph()
        leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
        # Exact in float64; rounded only when cast to the dtype of the loss.
        self.samples = tf.cast(tf.shape(leaves[0])[0], "float64")
        self.static_rows = leaves[0].shape[0]
        self.reader = GraphReader(self.static_rows)
        self.strict_reader = self.reader.strict()
        self.mark(self.samples, "COUNT")  # even if it is a constant
        self.may_be_empty = not self.static_rows and _can_be_padded(leaves, must_not_be_empty)
        self.replica = _upstream.replica_place()
        self.replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        rows = tf.maximum(self.samples, 1) if self.may_be_empty else self.samples
        self.rows = tf.cast(rows, "int64")
        self.first_row: Any
        self.global_rows: Any
        known: Any = None if isinstance(counts, tf.Tensor) else counts
        self.known_rows = self.static_rows if known is None else known[self.replica]
        if known is None:
            row_counts = self._row_counts() if counts is None else self.mark(counts, "SAME")
            self.first_row = tf.reduce_sum(row_counts[: self.replica])
            self.global_rows = tf.reduce_sum(row_counts)
        else:
            self.first_row, self.global_rows = sum(known[: self.replica]), sum(known)
        self.global_samples = tf.cast(self.global_rows, "float64")
        if self.may_be_empty:  # the row of zeros counts as the last row of the global batch
            last = self.global_rows - self.rows
            self.first_row = tf.minimum(tf.cast(self.first_row, "int64"), last)
        # Factor for a replica's sum in the replicas' mean, weighted by samples.
        self.inverse_fraction = tf.math.divide_no_nan(self.global_samples, self.samples)

    def _row_counts(self) -> Any:
        counts = all_reduce_sum(self.in_replica_row(self.samples))
        return self.mark(tf.cast(counts, "int64"), "SAME")

    def pad_if_empty(self, data: Any) -> Any:
        """Return the step's input, with a row of zeros if it has no rows.

        Without rows, the output of oneDNN's convolutions has the input's number of channels
        (TensorFlow 2.21, mkl_conv_ops.cc), and other kernels and losses crash. The results of the
        row of zeros are excluded everywhere.
        """

        def pad(leaf: Any) -> Any:
            if not isinstance(leaf, tf.Tensor):
                return leaf
            row = tf.concat([[1], tf.shape(leaf)[1:]], 0)
            return tf.cond(self.samples > 0, lambda: leaf, lambda: tf.zeros(row, leaf.dtype))

        padded = keras.tree.map_structure(pad, data) if self.may_be_empty else data
        for leaf in keras.tree.flatten(padded):
            self.mark(leaf, "ROWS")
        return padded

    def drop_padding(self, outputs: Any) -> Any:
        """Remove the row of zeros from the outputs."""

        def drop(tensor: Any) -> Any:
            if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank:
                return tensor
            return tf.cond(self.samples > 0, lambda: tensor, lambda: tensor[:0])

        def drop_with_attributes(tensor: Any) -> Any:
            return _upstream.copy_keras_attributes(tensor, drop(tensor), drop)

        if not self.may_be_empty:
            return outputs
        return keras.tree.map_structure(drop_with_attributes, outputs)

    def is_nonempty(self) -> Any:
        """Whether this replica has samples, a boolean tensor."""
        return self.samples > 0

    def fraction(self) -> Any:
        """Return this replica's samples as a fraction of the global batch."""
        return self.samples / self.global_samples

    def weight_by_fraction(self, value: Any) -> Any:
        """Return this replica's summand of the global batch's mean."""
        return value * tf.cast(self.fraction(), value.dtype)

    def zero_if_empty(self, value: Any) -> Any:
        """Replace a value by 0 if this replica has no samples: a mean over none may be NaN."""
        result = tf.where(self.is_nonempty(), value, tf.zeros_like(value))
        if not len(result.shape) and isinstance(value, tf.Tensor) and not tf.executing_eagerly():
            self.reader.mark(result, self.reader.kind(value))
        return result

    def mark(self, value: Any, kind: str) -> Any:
        """Record the kind of a tensor, and return the tensor."""
        if isinstance(value, tf.Tensor) and not tf.executing_eagerly():
            self.reader.mark(value, Kind[kind])
        return value

    def mark_rows(self, value: Any) -> None:
        """Record that a tensor has a row per sample, unless it is the same on all replicas."""
        symbolic = isinstance(value, tf.Tensor) and not tf.executing_eagerly()
        if symbolic and value.shape.rank and self.reader.kind(value) is not Kind.SAME:
            self.reader.mark(value, Kind.ROWS)

    def kind(self, value: Any) -> str | None:
        """Return how a tensor depends on the samples, a name in `Kind`; `None` without a graph."""
        symbolic = isinstance(value, tf.Tensor) and not tf.executing_eagerly()
        return self.reader.kind(value).name if symbolic else None

    def mixes_samples(self, values: Any) -> bool:
        """Whether values that look like one per sample depend on several samples."""
        if tf.executing_eagerly():
            return False
        return self.strict_reader.kind(values) in {*INEXACT, Kind.MEAN, Kind.SUM}

    def all_reduce_sum(self, value: Any) -> Any:
        """Sum over replicas; gradients flow through it."""
        return differentiable_all_reduce_sum(value)

    def all_gather(self, tensor: Any) -> Any:
        """Return the rows of all replicas; gradients flow through it."""
        tensor = tf.convert_to_tensor(tensor)
        blocks = _upstream.row_blocks(self, tf.shape(tensor), tensor) or ()
        parts = [tensor]
        if len(blocks) > 1:
            parts = tf.split(tensor, [block.count for block in blocks])
        rows = [self._gather_rows(part) for part in parts]
        return self.mark(tf.concat(rows, 0), "SAME")

    def _gather_rows(self, tensor: Any) -> Any:
        kind = tensor.dtype
        tensor = tensor[: tf.where(self.is_nonempty(), tf.shape(tensor)[0], 0)]  # no padding
        counts = all_reduce_sum(self.in_replica_row(tf.shape(tensor)[0]))
        before = tf.reduce_sum(counts[: self.replica])
        after = tf.reduce_sum(counts[self.replica + 1 :])
        # A sum of tensors that are zero outside the replica's rows: it allows uneven batches.
        rows = tf.pad(
            tf.cast(tensor, "int32") if kind in _NOT_SUMMED else tensor,
            [[before, after]] + [[0, 0]] * (len(tensor.shape) - 1),
        )
        total = self.all_reduce_sum(rows) if kind.is_floating else all_reduce_sum(rows)
        return tf.ensure_shape(tf.cast(total, kind), [None, *tensor.shape[1:]])

    def in_replica_row(self, value: Any) -> Any:
        """Return a tensor with a row per replica: `value` in this replica's, otherwise zeros."""
        value = tf.convert_to_tensor(value)
        row = tf.one_hot(self.replica, self.replicas, dtype=value.dtype)
        return tf.reshape(row, [-1] + [1] * len(value.shape)) * value


# Collectives of several workers sum no small integers.
_NOT_SUMMED = (tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16)


def _can_be_padded(leaves: Sequence[Any], must_not_be_empty: bool) -> bool:
    """Whether an empty replica should and can get a row of zeros."""
    dense = all(isinstance(leaf, tf.Tensor) for leaf in leaves)
    # Text layers may reject an empty string, and have no convolutions.
    numbers = dense and leaves[0].dtype != tf.string
    on_cpus = device_type(tf.distribute.get_strategy().devices[0]) == "CPU"
    return numbers and (must_not_be_empty or (on_cpus and _upstream.onednn_is_on()))
