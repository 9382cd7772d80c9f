"""Measurements of batch norms on a batch, and the likely cause if moving statistics do not fit."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.internals import call_model
from ..errors import UserError
from ..layers.batch_norm_kernels import input_moments
from ..layers.measurements import mean_loss, stateless_pass
from .convert import batch_norms, unsynchronized_batch_norms

_HINT = "pass one batch as fit() takes them, as in batch=(x[:128], y[:128])"


def checked_batch(batch: Any) -> Any:
    """Return a batch as `fit` takes it, with its leaves as arrays.

    Raises:
        UserError: If it is not `(x, y)` or `(x, y, sample_weight)` with equal numbers of samples.
    """
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        parts = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise UserError(
            f"batch is {type(batch).__name__}{parts}, but has to be a tuple (x, y) or"
            f" (x, y, sample_weight): {_HINT}."
        )
    arrays = keras.tree.map_structure(
        lambda leaf: None if leaf is None else np.asarray(leaf), tuple(batch)
    )
    shapes = [leaf.shape for leaf in keras.tree.flatten(arrays) if leaf is not None]
    samples = {shape[0] if shape else 0 for shape in shapes}
    if len(samples) != 1 or 0 in samples:
        raise UserError(
            f"batch has arrays of shapes {', '.join(map(str, shapes))}, but all have to have the "
            f"same number of samples, at least 1: {_HINT}."
        )
    return arrays


def check_model_accepts(model: keras.Model, batch: Any) -> None:
    """Raise `UserError` if a batch of such shapes cannot go through the model."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(_as_tensors(batch))
    try:
        with stateless_pass(model):
            call_model(model, x, training=True)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        shapes = [np.shape(leaf) for leaf in keras.tree.flatten(batch[0])]
        raise UserError(
            f"batch begins with x of shape {', '.join(map(str, shapes))}, which the model "
            f"{model.name!r} does not accept ({error}): {_HINT}."
        ) from error


def stateless_loss(model: keras.Model, batch: Any, *, training: bool) -> float:
    """Return the model's loss on a batch; no variable of the model changes."""
    with stateless_pass(model):
        return float(mean_loss(model, _as_tensors(batch), training=training))


@contextlib.contextmanager
def observed_moments(model: keras.Model) -> Iterator[dict[str, dict[int, list[Any]]]]:
    """Record the moments of batch norms' inputs: path → replica → `Kernels.local_moments` per call.

    A batch norm that is not synchronized gets the rows of each replica separately, as in training.
    """
    found: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    norms = batch_norms(model)
    replicas = model.distribute_strategy.num_replicas_in_sync
    alone = {id(norm) for norm in unsynchronized_batch_norms(model)}

    def observe(norm: Any) -> None:
        call, parts = norm.call, replicas if id(norm) in alone else 1

        def observed_call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            inputs, mask = tf.convert_to_tensor(inputs), kwargs.pop("mask", None)
            size = -(-inputs.shape[0] // parts)  # as TensorFlow divides a batch over replicas
            outputs = []
            for replica in range(-(-inputs.shape[0] // size)):
                rows = slice(replica * size, (replica + 1) * size)
                own = {} if mask is None else {"mask": mask[rows]}
                found[norm.path][replica].append(input_moments(norm, inputs[rows], **own))
                outputs.append(call(inputs[rows], *args, **kwargs, **own))
            return tf.concat(outputs, 0)

        norm.call = observed_call

    try:
        for norm in norms:
            observe(norm)
        yield found
    finally:
        for norm in norms:
            norm.__dict__.pop("call", None)


def _as_tensors(batch: Any) -> Any:
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf), batch
    )


GAP = 0.5
"""The largest `LayerGap.gap` that is small: half a standard deviation, or a variance off by a
factor of 1.65. The statistics of 16 values are off by 0.2 to 0.3 by chance."""

REPLICA_GAP = 0.1
"""The largest `LayerGap.replicas` that is small: more than chance explains with 16 values per
replica and momentum 0.9 or more."""

LAG = 0.1
"""The largest `LayerGap.kept` that is no lag: reached after 230 steps with momentum 0.99."""

LOSS_GAP = 0.25
"""The largest excess of the loss in inference mode, as a fraction of the loss in training mode,
that is small. Dropout makes the excess smaller."""

SMALL_BATCH = 16
"""Values per channel below which a batch's statistics are too noisy: at 16, its mean is off by a
quarter of a standard deviation (1 / sqrt(16)), and accuracy falls (Wu & He 2018, "Group
Normalization", figure 1)."""

SMALL_LOSS = 1e-3
"""The largest difference between losses that is ignored, however small the losses are."""


@dataclass(frozen=True)
class LayerGap:
    """Measurements of one batch norm after an epoch.

    Args:
        name: The layer's name.
        mean: `mean_distance` between the batch's and the moving statistics.
        variance: `variance_distance` between the same.
        replicas: The larger of both distances between any replica's moving statistics and those of
            replica 0; 0 on one replica.
        apart: The same between the batch statistics of the replicas' rows; 0 if the layer is
            synchronized, as all replicas then share one set.
        values: Values per channel in the statistics of one training step; on one replica if the
            layer is not synchronized.
        kept: Weight of the initial values in the moving statistics, `momentum ** steps`.
        frozen: Whether `trainable` is `False`.
        unchanged: Whether the moving statistics still have exactly their initial values.
    """

    name: str
    mean: float
    variance: float
    replicas: float = 0.0
    apart: float = 0.0
    values: float = float("inf")
    kept: float = 0.0
    frozen: bool = False
    unchanged: bool = False

    @property
    def gap(self) -> float:
        """The larger of the two distances; NaN if one is."""
        return float(np.max([self.mean, self.variance]))


def mean_distance(mean: Any, moving_mean: Any, moving_variance: Any, epsilon: float) -> float:
    """|mean - moving mean| in moving standard deviations, averaged over channels.

    Args:
        mean: The batch's means, shape `(channels,)`; the moving statistics likewise.
        moving_mean: The moving means.
        moving_variance: The moving variances.
        epsilon: The layer's, added to the variance.
    """
    deviation = np.sqrt(_doubles(moving_variance) + epsilon)
    return float(np.mean(np.abs(_doubles(mean) - _doubles(moving_mean)) / deviation))


def variance_distance(variance: Any, moving_variance: Any, epsilon: float) -> float:
    """|log((variance + epsilon) / (moving variance + epsilon))|, averaged over channels."""
    ratio = (_doubles(variance) + epsilon) / (_doubles(moving_variance) + epsilon)
    return float(np.mean(np.abs(np.log(ratio))))


def replica_distance(means: Any, variances: Any, epsilon: float) -> float:
    """The largest distance between a replica's statistics and those of replica 0.

    Args:
        means: Means, of a batch or moving ones, shape `(replicas, channels)`.
        variances: Variances, shape `(replicas, channels)`.
        epsilon: The layer's, added to the variance.
    """
    pairs = zip(means, variances, strict=True)
    return max(
        float(
            np.max(
                [
                    mean_distance(mean, means[0], variances[0], epsilon),
                    variance_distance(variance, variances[0], epsilon),
                ]
            )
        )
        for mean, variance in pairs
    )


def diagnose(layers: Sequence[LayerGap], losses: tuple[float, float]) -> str | None:
    """Describe the worst layer and the likely cause in one line; None if all gaps are small.

    Causes are checked from certain to probable: NaN or infinite values, replicas that differ,
    statistics that were never updated, statistics that lag, rows that differ between replicas,
    batches that are too small.

    Args:
        layers: Any number of layers; the result for none is None.
        losses: The loss in training mode and in inference mode, on the same batch.
    """
    if not layers:
        return None
    # NaN is beyond every threshold.
    worst = max(layers, key=lambda layer: np.nan_to_num(layer.gap, nan=np.inf))
    drifted = max(layers, key=lambda layer: np.nan_to_num(layer.replicas, nan=-1.0))
    if not np.isfinite(worst.gap):
        return f"{_describe_gap(worst)}: its values or moving statistics are NaN or infinite."
    if drifted.replicas > REPLICA_GAP:
        return (
            f"{_describe_gap(drifted)}, and its moving statistics differ by"
            f" {drifted.replicas:.2f} between replicas. Likely cause: the replicas drifted, as"
            " the layer is not synchronized; fix it with"
            ' kdist.convert_batch_norm(model, to="synchronized").'
        )
    in_training, in_inference = losses
    losses_differ = in_inference - in_training > max(LOSS_GAP * abs(in_training), SMALL_LOSS)
    if worst.gap <= GAP and not losses_differ:
        return None
    loss_text = (
        f"; the loss is {in_training:.3f} in training mode, {in_inference:.3f} in inference mode"
        if losses_differ
        else ""
    )
    return f"{_describe_gap(worst)}{loss_text}. Likely cause: {_likely_cause(worst)}."


def _describe_gap(layer: LayerGap) -> str:
    return (
        f"Batch norm gap: {layer.name}'s moving statistics differ from this batch's by"
        f" {layer.mean:.2f} standard deviations in the mean and {layer.variance:.2f} in the log"
        " variance"
    )


def _likely_cause(layer: LayerGap) -> str:
    if layer.unchanged and layer.frozen:
        return "they were never updated, as the layer is frozen; set its trainable to True"
    if layer.unchanged:
        return (
            "they were never updated; pass the training argument to the layer, and check that its"
            " momentum is below 1"
        )
    if layer.kept > LAG:
        return (
            "they lag behind; momentum is too high for so few steps, so"
            f" {100 * layer.kept:.0f} % of their value is from before training; lower momentum,"
            " train longer or call kdist.recalibrate_batch_norm"
        )
    # Statistics of few values are this far apart by chance: four times their standard error.
    if layer.apart > max(REPLICA_GAP, 4 / np.sqrt(layer.values)):
        return (
            f"the replicas' rows differ by {layer.apart:.2f} and the layer is not synchronized, so"
            " no moving statistics can fit all replicas;"
            ' call kdist.convert_batch_norm(model, to="synchronized")'
        )
    if layer.values < SMALL_BATCH:
        return (
            f"the batch per replica is too small, {layer.values:.0f} values per channel are too few"
            f" for statistics (fewer than {SMALL_BATCH}); use larger batches, or synchronize the"
            " replicas"
        )
    return (
        "the weights change faster than the statistics can follow, or the batch differs from the"
        " training data; lower the learning rate or momentum, or call kdist.recalibrate_batch_norm"
    )


def _doubles(values: Any) -> Any:
    return np.asarray(values, "float64")
