"""The exact train and test step: what one replica would do with the whole global batch.

Every replica computes a loss l_r of its own samples such that the sum of l_r * n_r / n over the
replicas is the loss of the global batch, where n_r of the n samples are on replica r. Gradients
are summed over replicas before the optimizer sees them; then every replica runs Keras's own
optimizer on its own copy of the variables, so clipping, accumulation, averages and the check for
finite gradients see what they would see on one replica.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from . import _upstream, gradient_norms
from .batch_norms import unsynchronized_batch_norms
from .devices import device_type


def train_step(model: keras.Model, data: Any) -> Any:
    """One training step, in replica context; returns the logs that no metric of the model has."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    batch = _BatchShare(x)
    with _upstream.loss_rules(batch):
        return _train_step(model, batch, x, y, sample_weight)


def _train_step(
    model: keras.Model, batch: "_BatchShare", x: Any, y: Any, sample_weight: Any
) -> Any:
    with tf.GradientTape() as tape:
        y_pred, loss = _forward(model, batch, x, y, sample_weight, training=True)
        objective = batch.weighted(loss)
        if model.optimizer is not None:
            objective = model.optimizer.scale_loss(objective)
    weights = model.trainable_weights
    if not weights:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    else:
        own = tape.gradient(objective, weights)
        gradients = _global_gradients(own, batch)
        if model in gradient_norms.observed:
            gradient_norms.observe_replica(model, own, gradients, batch.samples, batch.share())
        with _upstream.own_copies(model.optimizer, weights):
            model.optimizer.apply(gradients, weights)
    _average_plain_batch_norms(model, batch)
    return _own_logs(model, batch, x, y, y_pred, sample_weight)


def test_step(model: keras.Model, data: Any) -> Any:
    """One evaluation step, in replica context; returns the logs that no metric of the model has."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    batch = _BatchShare(x)
    with _upstream.loss_rules(batch):
        y_pred, _ = _forward(model, batch, x, y, sample_weight, training=False)
        return _own_logs(model, batch, x, y, y_pred, sample_weight)


def predict_step(predict: Callable[[Any], Any], data: Any) -> Any:
    """One prediction step, in replica context."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    rows = _Rows(x)
    data = keras.utils.pack_x_y_sample_weight(rows.at_least_one(x), y, sample_weight)
    return rows.of(predict(data))


def replica_rows(data: Any) -> Any:
    """This replica's part of a batch that came undivided, as from `train_on_batch`."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync

    def rows(tensor: Any) -> Any:
        tensor = tf.convert_to_tensor(tensor)
        size = -(-tf.shape(tensor)[0] // replicas)
        start = context.replica_id_in_sync_group * size
        return tensor[start : start + size]

    return keras.tree.map_structure(lambda leaf: None if leaf is None else rows(leaf), data)


class _Rows:
    """The samples of a replica, of which there may be none."""

    def __init__(self, x: Any) -> None:
        first = next(leaf for leaf in keras.tree.flatten(x) if leaf is not None)
        # float64 counts exactly, and is rounded only where it meets the loss's dtype.
        self.samples = tf.cast(tf.shape(first)[0], "float64")
        self.static_samples = first.shape[0]
        on_cpus = device_type(tf.distribute.get_strategy().devices[0]) == "CPU"
        numbers = all(
            isinstance(leaf, tf.Tensor) and leaf.dtype != tf.string
            for leaf in keras.tree.flatten(x)
            if leaf is not None
        )
        # Layers of text may refuse an empty string, and have no convolutions.
        self._may_be_none = (
            not self.static_samples and on_cpus and numbers and _upstream.onednn_is_on()
        )

    def at_least_one(self, x: Any) -> Any:
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

        return keras.tree.map_structure(some, x) if self._may_be_none else x

    def of(self, outputs: Any) -> Any:
        """The outputs without what came of that row."""

        def own(tensor: Any) -> Any:
            if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank:
                return tensor
            return tf.cond(self.samples > 0, lambda: tensor, lambda: tensor[:0])

        def with_attributes(tensor: Any) -> Any:
            return _upstream.with_attributes_of(tensor, own(tensor), own)

        return keras.tree.map_structure(with_attributes, outputs) if self._may_be_none else outputs


class _BatchShare(_Rows):
    """The samples of this replica among those of the global batch: Keras's loss rules for it."""

    def __init__(self, x: Any) -> None:
        super().__init__(x)
        self._context = tf.distribute.get_replica_context()
        self.global_samples = self._sum(self.samples)
        self._scale = tf.math.divide_no_nan(self.global_samples, self.samples)

    def present(self) -> Any:
        return self.samples > 0

    def share(self) -> Any:
        return self.samples / self.global_samples

    def weighted(self, loss: Any) -> Any:
        """This replica's summand of the global loss."""
        return loss * tf.cast(self.share(), loss.dtype)

    def zero_if_empty(self, value: Any) -> Any:
        """Nothing instead of the NaN that a mean over no samples may give."""
        return tf.where(self.samples > 0, value, tf.zeros_like(value))

    def reduced(
        self, loss: Any, values: Any, sample_weight: Any, mask: Any, reduction: str | None
    ) -> Any:
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
        part = tf.math.divide_no_nan(divisor, self._sum(tf.stop_gradient(divisor)))
        return loss * tf.cast(part * self._scale, loss.dtype)

    def additional(self, loss: Any) -> Any:
        # Entries for samples or their parts: Keras adds these up. A scalar is taken for a mean.
        if not len(loss.shape):
            return loss
        size, samples = loss.shape[0], self.static_samples
        per_sample = size is None if samples is None else size is not None and size % samples == 0
        return loss * tf.cast(self._scale, loss.dtype) if per_sample else loss

    def total(self, value: Any) -> Any:
        return self._sum(value)

    def gathered(self, tensor: Any) -> Any:
        tensor = tf.convert_to_tensor(tensor)
        number, kind = tf.shape(tensor)[0], tensor.dtype
        replica = self._context.replica_id_in_sync_group
        numbers = self._sum(tf.one_hot(replica, self._context.num_replicas_in_sync, number, 0))
        before = tf.math.cumsum(numbers, exclusive=True)[replica]
        after = tf.reduce_sum(numbers) - before - number
        # A sum of rows that are zero but on one replica, which takes uneven parts.
        rows = tf.pad(
            tf.cast(tensor, "int32") if kind == tf.bool else tensor,
            [[before, after]] + [[0, 0]] * (len(tensor.shape) - 1),
        )
        return tf.ensure_shape(tf.cast(self._sum(rows), kind), [None, *tensor.shape[1:]])

    def mean(self, values: Sequence[Any]) -> list[Any]:
        """Means over the global batch of what are means over this replica's samples."""
        values = [tf.convert_to_tensor(v) for v in values]
        # Whole numbers are averaged as others are, and rounded.
        exact = [v if v.dtype.is_floating else tf.cast(v, "float64") for v in values]
        means = self._sum([self.zero_if_empty(self.weighted(v)) for v in exact])
        return [
            m if v.dtype.is_floating else tf.cast(tf.round(m), v.dtype)
            for m, v in zip(means, values, strict=True)
        ]

    def _sum(self, value: Any) -> Any:
        return self._context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _forward(
    model: keras.Model, batch: _BatchShare, x: Any, y: Any, sample_weight: Any, *, training: bool
) -> tuple[Any, Any]:
    y_pred = batch.of(_upstream.call_model(model, batch.at_least_one(x), training=training))
    loss = _upstream.compute_loss(model, x, y, y_pred, sample_weight, training=training)
    # With reduction="none" there is a value a sample, and `reduced` has scaled their sum.
    mean = tf.reduce_mean(batch.weighted(loss)) if len(loss.shape) else loss
    _upstream.loss_tracker(model).update_state(
        batch.zero_if_empty(mean), sample_weight=batch.samples
    )
    return y_pred, loss


def _own_logs(
    model: keras.Model, batch: _BatchShare, x: Any, y: Any, y_pred: Any, sample_weight: Any
) -> dict[str, Any]:
    """Update the metrics; what a model's own `compute_metrics` logs besides is taken for a mean."""
    logs = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    if _upstream.computes_stock_metrics(model):
        return {}
    known = {metric.name for metric in model.metrics}
    own = {name: value for name, value in logs.items() if name not in known}
    return dict(zip(own, batch.mean(list(own.values())), strict=True)) if own else {}


def _global_gradients(gradients: Sequence[Any], batch: _BatchShare) -> list[Any]:
    """The gradients summed over replicas; `None` stays where there is none."""
    own = [_defined(gradient, batch) for gradient in gradients if gradient is not None]
    if not own:
        return list(gradients)
    context = tf.distribute.get_replica_context()
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, own))
    return [None if gradient is None else next(summed) for gradient in gradients]


def _defined(gradient: Any, batch: _BatchShare) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = batch.zero_if_empty(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return batch.zero_if_empty(gradient)


def _average_plain_batch_norms(model: keras.Model, batch: _BatchShare) -> None:
    """Keep one set of moving statistics: a file holds those of replica 0 only (keras#14372)."""
    layers = unsynchronized_batch_norms(model)
    moving = [v for layer in layers for v in (layer.moving_mean, layer.moving_variance)]
    if moving:
        for variable, mean in zip(moving, batch.mean([v.value for v in moving]), strict=True):
            variable.assign(mean)
