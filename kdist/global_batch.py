"""A replica's part of a global batch, and how what is computed from it counts in the whole."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from . import _upstream
from .collectives import all_reduce_sum, differentiable_all_reduce_sum
from .devices import device_type
from .loss_terms import GraphReader, Kind, Term


class GlobalBatch:
    """The samples of this replica among those of the global batch: Keras's loss rules for it.

    Args:
        data: What the step is given on this replica, the model's inputs first.
        counts: Samples of each replica, where that is known before the step runs.
        draws_by_place: Whether random draws follow the sample's place in the global batch.
        is_own_step: Whether a user wrote the step.
        has_global_results: Whether the step computes with the results of metrics.
        warn: Takes a number that no replica can tell its part of.
        warn_of_gradient: Takes a gradient that was changed so that replicas' no longer add up.
        attributes: What this replica keeps in attributes of layers.
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
        attributes: Any,
    ) -> None:
        self.draws_by_place = draws_by_place
        self.is_own_step = is_own_step
        self.has_global_results = has_global_results
        self.attributes = attributes
        self.graph = tf.compat.v1.get_default_graph()
        self._warn = warn
        self._warn_of_gradient = warn_of_gradient
        leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
        # float64 counts exactly, and is rounded only where it meets the loss's dtype.
        self.samples = tf.cast(tf.shape(leaves[0])[0], "float64")
        self.static_rows = leaves[0].shape[0]
        self._reader = GraphReader(self.static_rows)
        on_cpus = device_type(tf.distribute.get_strategy().devices[0]) == "CPU"
        dense = all(isinstance(leaf, tf.Tensor) for leaf in leaves)
        # Layers of text may refuse an empty string, and have no convolutions.
        numbers = dense and leaves[0].dtype != tf.string
        needed = is_own_step or (on_cpus and _upstream.onednn_is_on())
        self.may_be_empty = bool(not self.static_rows and numbers and needed)
        context = tf.distribute.get_replica_context()
        self._replica, self._replicas = _upstream.replica_index(), context.num_replicas_in_sync
        rows = tf.maximum(self.samples, 1) if self.may_be_empty else self.samples
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
        if self.may_be_empty:  # the row of zeros takes another's place
            last = self.global_rows - self.rows
            self.first_row = tf.minimum(tf.cast(self.first_row, "int64"), last)
        self._scale = tf.math.divide_no_nan(self.global_samples, self.samples)

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

    def weight_by_fraction(self, loss: Any) -> Any:
        """This replica's summand of the global loss."""
        return loss * tf.cast(self.fraction(), loss.dtype)

    def zero_if_empty(self, value: Any) -> Any:
        """Nothing instead of the NaN that a mean over no samples may give."""
        kept = tf.where(self.is_nonempty(), value, tf.zeros_like(value))
        if not len(kept.shape) and isinstance(value, tf.Tensor) and not tf.executing_eagerly():
            self._reader.mark(kept, self._reader.kind(value))
        return kept

    def rescale(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
        """From `loss`, the values of this replica reduced, to its part in the global batch's."""
        if not len(values.shape):
            return loss  # computed anew, on the global batch
        if len(loss.shape):
            return loss  # a value for each sample
        if reduction == "sum":
            return loss * tf.cast(self._scale, loss.dtype)
        if reduction == "mean_with_sample_weight":
            weight = _upstream.effective_sample_weight(sample_weight, mask, loss.dtype, reduction)
        else:
            weight = mask
        if weight is None:
            return loss
        divisor = self.zero_if_empty(tf.reduce_sum(tf.cast(weight, "float64")))
        part = tf.math.divide_no_nan(divisor, self.all_reduce_sum(tf.stop_gradient(divisor)))
        return loss * tf.cast(part * self._scale, loss.dtype)

    def rescale_added(self, loss: Any) -> Any:
        """The same for what a layer added by `add_loss`; Keras adds up the values of a vector."""
        if not len(loss.shape):
            return self.rescale_or_warn(loss)
        if tf.executing_eagerly():
            rows = self.static_rows
            is_sum = bool(rows) and loss.shape[0] % rows == 0
        else:
            is_sum = self._reader.kind(loss) in (Kind.ROWS, Kind.SUM)
        return loss * tf.cast(self._scale, loss.dtype) if is_sum else loss

    def rescale_number(self, number: Any) -> Any | None:
        """A scalar such that the replicas' mean by their share of the samples is the batch's.

        `None` where no scalar of this replica has a part in the batch's.
        """
        parts = self._terms(number)
        kinds = {part.kind for part in parts}
        if kinds & {Kind.OTHER, Kind.ROWS}:
            return None
        if not kinds & {Kind.SUM, Kind.COUNT}:
            return number
        scale = tf.cast(self._scale, number.dtype)
        return tf.add_n(
            [
                part.tensor
                * tf.cast(part.factor, number.dtype)
                * (scale if part.kind in (Kind.SUM, Kind.COUNT) else 1)
                for part in parts
            ]
        )

    def rescale_or_warn(self, number: Any) -> Any:
        """As `rescale_number`; the number itself, and a warning, where there is none."""
        rescaled = self.rescale_number(number)
        if rescaled is None:
            self._warn(number)
        return number if rescaled is None else rescaled

    def mixes_samples(self, values: Any) -> bool:
        """Whether values that look like one for each sample are made of several samples."""
        if tf.executing_eagerly():
            return False
        return self._reader.kind(values) in (Kind.OTHER, Kind.MEAN, Kind.SUM)

    def mark_rows(self, value: Any) -> None:
        """Note that a tensor has a row for each sample, unless it is the same on all replicas."""
        symbolic = isinstance(value, tf.Tensor) and not tf.executing_eagerly()
        if symbolic and value.shape.rank and self._reader.kind(value) is not Kind.SAME:
            self._reader.mark(value, Kind.ROWS)

    def warn(self, number: Any) -> None:
        """Warn of a number that no replica can tell its part of."""
        self._warn(number)

    @contextlib.contextmanager
    def holding_warnings(self) -> Iterator[list[Any]]:
        """Inside, numbers that would be warned of are put into a list."""
        held: list[Any] = []
        before, self._warn = self._warn, held.append
        try:
            yield held
        finally:
            self._warn = before

    def weighted_terms(self, target: Any) -> list[tuple[Any, Any]]:
        """What to take the gradient of, and how each counts in the global batch's."""
        if len(target.shape):
            return [(target, tf.ones_like(target))]
        parts = self._terms(target)
        if any(part.kind is Kind.OTHER for part in parts):
            self._warn(target)
        return [(part.tensor, self._weight(part)) for part in parts]

    def _weight(self, part: Term) -> Any:
        is_sum = part.kind is Kind.SUM
        weight = tf.cast(self.is_nonempty() if is_sum else self.fraction(), part.tensor.dtype)
        return weight * tf.cast(part.factor, weight.dtype)

    def _terms(self, number: Any) -> Sequence[Term]:
        if tf.executing_eagerly():  # leaves no graph to read
            return [Term(number, 1.0, Kind.MEAN)]
        return self._reader.terms(number)

    def _is_shared(self, data: Any) -> bool:
        """Whether rows are the same on every replica, such as gathered ones."""
        rows = [x for x in keras.tree.flatten(data) if isinstance(x, tf.Tensor) and x.shape.rank]
        if tf.executing_eagerly() or not rows:
            return False
        return all(self._reader.kind(leaf) is Kind.SAME for leaf in rows)

    def is_counted(self, data: Any) -> Any:
        """Whether a metric on this replica counts what it is updated with."""
        if self._is_shared(data):
            return self._replica == 0
        return self.is_nonempty() if self.may_be_empty else True

    def mark(self, value: Any, kind: str) -> Any:
        """Note that a tensor is of this kind, and return it."""
        if isinstance(value, tf.Tensor) and not tf.executing_eagerly():
            self._reader.mark(value, Kind[kind])
        return value

    def global_gradients(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """The gradients summed over replicas; `None` stays where there is none."""
        present = [
            index
            for index, one in enumerate(gradients)
            if one is not None and not self._is_summed(one)
        ]
        overwritten = [i for i in present if _upstream.is_overwritten(variables[i])]
        summed = [i for i in present if i not in overwritten]
        outcome = list(gradients)
        own = [self._defined(gradients[index]) for index in summed]
        for index, total in zip(summed, self._sums(own) if own else [], strict=True):
            outcome[index] = total
        for index in overwritten:
            # Not a gradient but the variable's next value: with float8 the largest amount seen.
            rows = all_reduce_sum(self._at_own_place(self.zero_if_empty(gradients[index])))
            outcome[index] = tf.reduce_max(rows, 0)
        return outcome

    def _is_summed(self, gradient: Any) -> bool:
        """Whether a user's step has summed a gradient already; a changed one is warned of."""
        dense = isinstance(gradient, tf.Tensor) and not tf.executing_eagerly()
        if not self.is_own_step or not dense:
            return False
        kind = self._reader.kind(gradient)
        if kind is Kind.OTHER:
            self._warn_of_gradient(gradient)
        return kind is Kind.SAME

    def _defined(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values = self.zero_if_empty(gradient.values)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return self.zero_if_empty(gradient)

    def _sums(self, gradients: list[Any]) -> list[Any]:
        """Slices that every replica has are added up: Keras takes each for another sample's."""
        shared = [self._is_of_shared_rows(gradient) for gradient in gradients]
        own = [g.values if alike else g for g, alike in zip(gradients, shared, strict=True)]
        return [
            tf.IndexedSlices(total, gradient.indices, gradient.dense_shape) if alike else total
            for total, gradient, alike in zip(all_reduce_sum(own), gradients, shared, strict=True)
        ]

    def _is_of_shared_rows(self, gradient: Any) -> bool:
        sparse = isinstance(gradient, tf.IndexedSlices)
        return (
            sparse
            and not tf.executing_eagerly()
            and self._reader.kind(gradient.indices) is Kind.SAME
        )

    def all_reduce_state(self, variables: list[Any], merge: Any) -> list[Any]:
        """The state of a metric over all replicas; `merge` is its `merge_replicas` or `None`."""
        own = [tf.convert_to_tensor(variable.value) for variable in variables]
        if merge is None:
            kept = [self._of_kept(v, o) for v, o in zip(variables, own, strict=True)]
            merged = all_reduce_sum(kept)
        else:
            rows = all_reduce_sum([self._at_own_place(value) for value in own])
            merged = [merge(v, row) for v, row in zip(variables, rows, strict=True)]
        return [self.mark(tf.identity(value), "SAME") for value in merged]

    def _of_kept(self, variable: keras.Variable, own: Any) -> Any:
        if variable.aggregation == "mean":
            return own / self._replicas
        if variable.aggregation == "only_first_replica" and self._replica:
            return tf.zeros_like(own)
        return own

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
        """The numbers that the global batch has, from those that a step logs for its part of it."""
        values = [tf.convert_to_tensor(v) for v in values]
        means = all_reduce_sum([self._summand(value) for value in values])
        return [
            m if v.dtype.is_floating else tf.cast(tf.round(m), v.dtype)
            for m, v in zip(means, values, strict=True)
        ]

    def _summand(self, value: Any) -> Any:
        # Whole numbers are averaged as others are, and rounded.
        value = value if value.dtype.is_floating else tf.cast(value, "float64")
        value = value if len(value.shape) else self.rescale_or_warn(value)
        return self.zero_if_empty(self.weight_by_fraction(value))

    def _at_own_place(self, value: Any) -> Any:
        """The replicas' values in rows, zero but for this one's."""
        value = tf.convert_to_tensor(value)
        row = tf.one_hot(self._replica, self._replicas, dtype=value.dtype)
        return tf.reshape(row, [-1] + [1] * len(value.shape)) * value
