"""A replica's samples among those of the global batch: counted, padded, gathered."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..ops.collectives import all_reduce_sum, differentiable_all_reduce_sum
from .devices import device_type
from .graph_reader import GraphReader
from .kinds import Kind


class ReplicaBatch:
    """The samples of this replica, and where they are in the global batch.

    Args:
        data: What the step is given on this replica, the model's inputs first.
        counts: Samples of each replica, where that is known before the step runs.
        must_not_be_empty: Whether the step may fail on no samples, so that an empty replica is
            given a row of zeros; where oneDNN's kernels are used it is given one anyway.
    """

    def __init__(self, data: Any, counts: Sequence[int] | None, *, must_not_be_empty: bool) -> None:
        self.graph = tf.compat.v1.get_default_graph()
        leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
        # float64 counts exactly, and is rounded only where it meets the loss's dtype.
        self.samples = tf.cast(tf.shape(leaves[0])[0], "float64")
        self.static_rows = leaves[0].shape[0]
        self.reader = GraphReader(self.static_rows)
        self.mark(self.samples, "COUNT")  # also where it is a constant
        self.may_be_empty = not self.static_rows and _can_be_padded(leaves, must_not_be_empty)
        self.replica = _upstream.replica_index()
        self.replicas = tf.distribute.get_replica_context().num_replicas_in_sync
        rows = tf.maximum(self.samples, 1) if self.may_be_empty else self.samples
        self.rows = tf.cast(rows, "int64")
        self.first_row: Any
        self.global_rows: Any
        self.known_rows = self.static_rows if counts is None else counts[self.replica]
        if counts is None:
            row_counts = tf.cast(all_reduce_sum(self.at_own_place(self.samples)), "int64")
            self.first_row = tf.reduce_sum(row_counts[: self.replica])
            self.global_rows = tf.reduce_sum(row_counts)
        else:
            self.first_row, self.global_rows = sum(counts[: self.replica]), sum(counts)
        self.global_samples = tf.cast(self.global_rows, "float64")
        if self.may_be_empty:  # the row of zeros takes another's place
            last = self.global_rows - self.rows
            self.first_row = tf.minimum(tf.cast(self.first_row, "int64"), last)
        # By what a replica's sum counts in the mean over replicas by their samples.
        self.inverse_fraction = tf.math.divide_no_nan(self.global_samples, self.samples)

    def pad_if_empty(self, data: Any) -> Any:
        """What the step is given, or a row of zeros instead of none.

        Of no rows, oneDNN's convolutions give as many channels as went in, not as should come out
        (TensorFlow 2.21, mkl_conv_ops.cc), and other kernels and losses crash. What comes of the
        row counts nowhere.
        """

        def some(leaf: Any) -> Any:
            if not isinstance(leaf, tf.Tensor):
                return leaf
            row = tf.concat([[1], tf.shape(leaf)[1:]], 0)
            return tf.cond(self.samples > 0, lambda: leaf, lambda: tf.zeros(row, leaf.dtype))

        padded = keras.tree.map_structure(some, data) if self.may_be_empty else data
        for leaf in keras.tree.flatten(padded):
            self.mark(leaf, "ROWS")
        return padded

    def drop_padding(self, outputs: Any) -> Any:
        """The outputs without what came of that row."""

        def own(tensor: Any) -> Any:
            if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank:
                return tensor
            return tf.cond(self.samples > 0, lambda: tensor, lambda: tensor[:0])

        def with_attributes(tensor: Any) -> Any:
            return _upstream.with_attributes_of(tensor, own(tensor), own)

        return keras.tree.map_structure(with_attributes, outputs) if self.may_be_empty else outputs

    def is_nonempty(self) -> Any:
        """False where this replica has no sample, and its inputs are not to count."""
        return self.samples > 0

    def fraction(self) -> Any:
        """This replica's samples as a fraction of the global batch's."""
        return self.samples / self.global_samples

    def weight_by_fraction(self, value: Any) -> Any:
        """This replica's summand of the global batch's mean."""
        return value * tf.cast(self.fraction(), value.dtype)

    def zero_if_empty(self, value: Any) -> Any:
        """Nothing instead of the NaN that a mean over no samples may give."""
        kept = tf.where(self.is_nonempty(), value, tf.zeros_like(value))
        if not len(kept.shape) and isinstance(value, tf.Tensor) and not tf.executing_eagerly():
            self.reader.mark(kept, self.reader.kind(value))
        return kept

    def mark(self, value: Any, kind: str) -> Any:
        """Note that a tensor is of this kind, and return it."""
        if isinstance(value, tf.Tensor) and not tf.executing_eagerly():
            self.reader.mark(value, Kind[kind])
        return value

    def mark_rows(self, value: Any) -> None:
        """Note that a tensor has a row for each sample, unless it is the same on all replicas."""
        symbolic = isinstance(value, tf.Tensor) and not tf.executing_eagerly()
        if symbolic and value.shape.rank and self.reader.kind(value) is not Kind.SAME:
            self.reader.mark(value, Kind.ROWS)

    def mixes_samples(self, values: Any) -> bool:
        """Whether values that look like one for each sample are made of several samples."""
        if tf.executing_eagerly():
            return False
        return self.reader.kind(values) in (Kind.OTHER, Kind.MEAN, Kind.SUM)

    def all_reduce_sum(self, value: Any) -> Any:
        """The sum over replicas, which gradients flow through."""
        return differentiable_all_reduce_sum(value)

    def all_gather(self, tensor: Any) -> Any:
        """The rows of all replicas, which gradients flow through."""
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
        counts = all_reduce_sum(self.at_own_place(tf.shape(tensor)[0]))
        before = tf.reduce_sum(counts[: self.replica])
        after = tf.reduce_sum(counts[self.replica + 1 :])
        # A sum of rows that are zero but on one replica, which takes uneven parts.
        rows = tf.pad(
            tf.cast(tensor, "int32") if kind == tf.bool else tensor,
            [[before, after]] + [[0, 0]] * (len(tensor.shape) - 1),
        )
        total = self.all_reduce_sum(rows) if kind.is_floating else all_reduce_sum(rows)
        return tf.ensure_shape(tf.cast(total, kind), [None, *tensor.shape[1:]])

    def at_own_place(self, value: Any) -> Any:
        """The replicas' values in rows, zero but for this one's."""
        value = tf.convert_to_tensor(value)
        row = tf.one_hot(self.replica, self.replicas, dtype=value.dtype)
        return tf.reshape(row, [-1] + [1] * len(value.shape)) * value


def _can_be_padded(leaves: Sequence[Any], must_not_be_empty: bool) -> bool:
    """Whether an empty replica is to be given a row of zeros, and can be."""
    dense = all(isinstance(leaf, tf.Tensor) for leaf in leaves)
    # Layers of text may refuse an empty string, and have no convolutions.
    numbers = dense and leaves[0].dtype != tf.string
    on_cpus = device_type(tf.distribute.get_strategy().devices[0]) == "CPU"
    return numbers and (must_not_be_empty or (on_cpus and _upstream.onednn_is_on()))
