"""A replica's part of a global batch, and how what is computed from it counts in the whole."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from . import _upstream
from .collectives import all_reduce_sum, differentiable_all_reduce_sum
from .devices import device_type


class ReplicaBatch:
    """The samples of a replica, of which there may be none.

    Args:
        x: The model's inputs on this replica.
    """

    def __init__(self, x: Any) -> None:
        first = next(leaf for leaf in keras.tree.flatten(x) if leaf is not None)
        # float64 counts exactly, and is rounded only where it meets the loss's dtype.
        self.samples = tf.cast(tf.shape(first)[0], "float64")
        self.static_rows = first.shape[0]
        on_cpus = device_type(tf.distribute.get_strategy().devices[0]) == "CPU"
        numbers = all(
            isinstance(leaf, tf.Tensor) and leaf.dtype != tf.string
            for leaf in keras.tree.flatten(x)
            if leaf is not None
        )
        # Layers of text may refuse an empty string, and have no convolutions.
        self._may_be_empty = (
            not self.static_rows and on_cpus and numbers and _upstream.onednn_is_on()
        )

    def pad_if_empty(self, x: Any) -> Any:
        """The inputs, or a row of zeros instead of none.

        Of no rows, oneDNN's convolutions give as many channels as went in, not as should come out
        (TensorFlow 2.21, mkl_conv_ops.cc), and other kernels crash. What comes of the row is left
        out of everything.
        """

        def some(leaf: Any) -> Any:
            if not isinstance(leaf, tf.Tensor):
                return leaf
            row = tf.concat([[1], tf.shape(leaf)[1:]], 0)
            return tf.cond(self.samples > 0, lambda: leaf, lambda: tf.zeros(row, leaf.dtype))

        return keras.tree.map_structure(some, x) if self._may_be_empty else x

    def drop_padding(self, outputs: Any) -> Any:
        """The outputs without what came of that row."""

        def own(tensor: Any) -> Any:
            if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank:
                return tensor
            return tf.cond(self.samples > 0, lambda: tensor, lambda: tensor[:0])

        def with_attributes(tensor: Any) -> Any:
            return _upstream.with_attributes_of(tensor, own(tensor), own)

        return keras.tree.map_structure(with_attributes, outputs) if self._may_be_empty else outputs


class GlobalBatch(ReplicaBatch):
    """The samples of this replica among those of the global batch: Keras's loss rules for it.

    Args:
        x: The model's inputs on this replica.
        counts: Samples of each replica, where that is known before the step runs.
        draws_by_place: Whether random draws follow the sample's place in the global batch.
    """

    def __init__(
        self, x: Any, counts: Sequence[int] | None = None, *, draws_by_place: bool = True
    ) -> None:
        super().__init__(x)
        context = tf.distribute.get_replica_context()
        self.draws_by_place = draws_by_place
        self._replica, self._replicas = _upstream.replica_index(), context.num_replicas_in_sync
        rows = tf.maximum(self.samples, 1) if self._may_be_empty else self.samples
        self.rows = tf.cast(rows, "int64")
        self.first_row: Any
        self.global_rows: Any
        if counts is None:
            row_counts = tf.cast(all_reduce_sum(self._at_own_place(self.samples)), "int64")
            self.first_row = tf.reduce_sum(row_counts[: self._replica])
            self.global_rows = tf.reduce_sum(row_counts)
        else:
            self.first_row, self.global_rows = sum(counts[: self._replica]), sum(counts)
        self.global_samples = tf.cast(self.global_rows, "float64")
        if self._may_be_empty:  # the row of zeros takes another's place
            last = self.global_rows - self.rows
            self.first_row = tf.minimum(tf.cast(self.first_row, "int64"), last)
        self._scale = tf.math.divide_no_nan(self.global_samples, self.samples)

    def is_nonempty(self) -> Any:
        """False where this replica has no sample, and its inputs are not to count."""
        return self.samples > 0

    def fraction(self) -> Any:
        """This replica's samples as a fraction of the global batch's."""
        return self.samples / self.global_samples

    def weight_by_fraction(self, loss: Any) -> Any:
        """This replica's summand of the global loss."""
        return loss * tf.cast(self.fraction(), loss.dtype)

    def zero_if_empty(self, value: Any) -> Any:
        """Nothing instead of the NaN that a mean over no samples may give."""
        return tf.where(self.samples > 0, value, tf.zeros_like(value))

    def rescale(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """From `loss`, the values of this replica reduced, to its part in the global batch's."""
        if not len(values.shape):
            return loss  # computed anew, on the global batch
        if reduction in (None, "none", "sum"):
            return loss * tf.cast(self._scale, loss.dtype)
        if reduction == "mean_with_sample_weight":
            weight = _upstream.effective_sample_weight(sample_weight, mask, loss.dtype, reduction)
        else:
            weight = mask
        if weight is None:
            return loss
        divisor = tf.reduce_sum(tf.cast(weight, "float64"))
        part = tf.math.divide_no_nan(divisor, self.all_reduce_sum(tf.stop_gradient(divisor)))
        return loss * tf.cast(part * self._scale, loss.dtype)

    def rescale_added(self, loss: Any) -> Any:
        """The same for what a layer added by `add_loss`."""
        # Entries for samples or their parts: Keras adds these up. A scalar is taken for a mean.
        if not len(loss.shape):
            return loss
        size, samples = loss.shape[0], self.static_rows
        per_sample = size is None if samples is None else size is not None and size % samples == 0
        return loss * tf.cast(self._scale, loss.dtype) if per_sample else loss

    def all_reduce_sum(self, value: Any) -> Any:
        """The sum over replicas, which gradients flow through."""
        return differentiable_all_reduce_sum(value)

    def all_gather(self, tensor: Any) -> Any:
        """The rows of all replicas, which gradients flow through."""
        tensor = tf.convert_to_tensor(tensor)
        blocks = _upstream.row_blocks(self, tf.shape(tensor), tensor)
        if not blocks or len(blocks) == 1:
            return self._gather_rows(tensor)
        parts = tf.split(tensor, [block.count for block in blocks])
        return tf.concat([self._gather_rows(part) for part in parts], 0)

    def _gather_rows(self, tensor: Any) -> Any:
        kind = tensor.dtype
        tensor = tensor[: tf.where(self.is_nonempty(), tf.shape(tensor)[0], 0)]  # no padding
        counts = all_reduce_sum(self._at_own_place(tf.shape(tensor)[0]))
        before = tf.reduce_sum(counts[: self._replica])
        after = tf.reduce_sum(counts[self._replica + 1 :])
        # A sum of rows that are zero but on one replica, which takes uneven parts.
        rows = tf.pad(
            tf.cast(tensor, "int32") if kind == tf.bool else tensor,
            [[before, after]] + [[0, 0]] * (len(tensor.shape) - 1),
        )
        total = self.all_reduce_sum(rows) if kind.is_floating else all_reduce_sum(rows)
        return tf.ensure_shape(tf.cast(total, kind), [None, *tensor.shape[1:]])

    def mean(self, values: Sequence[Any]) -> list[Any]:
        """Means over the global batch of what are means over this replica's samples."""
        values = [tf.convert_to_tensor(v) for v in values]
        # Whole numbers are averaged as others are, and rounded.
        exact = [v if v.dtype.is_floating else tf.cast(v, "float64") for v in values]
        means = all_reduce_sum([self.zero_if_empty(self.weight_by_fraction(v)) for v in exact])
        return [
            m if v.dtype.is_floating else tf.cast(tf.round(m), v.dtype)
            for m, v in zip(means, values, strict=True)
        ]

    def _at_own_place(self, value: Any) -> Any:
        """A vector with an entry for each replica, zero but for this one's."""
        return tf.one_hot(self._replica, self._replicas, value, tf.zeros_like(value))
