"""Diagnoses batch norms whose moving statistics do not fit a batch: numbers in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .find import SMALL_BATCH

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


def diagnosis(
    layers: Sequence[LayerGap],
    *,
    gap: float,
    replica_gap: float,
    kept: float,
    loss_gap: float,
    losses: tuple[float, float],
) -> str | None:
    """Describe the worst layer and the likely cause in one line; None if all gaps are small.

    Causes are checked from certain to probable: NaN or infinite values, replicas that differ,
    statistics that were never updated, statistics that lag, rows that differ between replicas,
    batches that are too small.

    Args:
        layers: Any number of layers; the result for none is None.
        gap: The largest `LayerGap.gap` that counts as small.
        replica_gap: The largest `LayerGap.replicas` that counts as small.
        kept: The largest `LayerGap.kept` that does not count as lag.
        loss_gap: The largest excess of the second loss over the first, as a fraction of the first,
            that counts as small.
        losses: The loss in training mode and in inference mode, on the same batch.
    """
    if not layers:
        return None
    # NaN is beyond every threshold.
    worst = max(layers, key=lambda layer: np.nan_to_num(layer.gap, nan=np.inf))
    drifted = max(layers, key=lambda layer: np.nan_to_num(layer.replicas, nan=-1.0))
    if not np.isfinite(worst.gap):
        return f"{_off(worst)}: its values or moving statistics are NaN or infinite."
    if drifted.replicas > replica_gap:
        return (
            f"{_off(drifted)}, and its moving statistics differ by {drifted.replicas:.2f} between"
            " replicas. Likely cause: the replicas drifted, as the layer is not synchronized; fix"
            ' it with kdist.convert_batch_norm(model, to="synchronized").'
        )
    in_training, in_inference = losses
    losses_differ = in_inference - in_training > max(loss_gap * abs(in_training), SMALL_LOSS)
    if worst.gap <= gap and not losses_differ:
        return None
    loss_text = (
        f"; the loss is {in_training:.3f} in training mode, {in_inference:.3f} in inference mode"
        if losses_differ
        else ""
    )
    return f"{_off(worst)}{loss_text}. Likely cause: {_cause(worst, replica_gap, kept)}."


def _off(layer: LayerGap) -> str:
    return (
        f"Batch norm gap: {layer.name}'s moving statistics differ from this batch's by"
        f" {layer.mean:.2f} standard deviations in the mean and {layer.variance:.2f} in the log"
        " variance"
    )


def _cause(layer: LayerGap, replica_gap: float, kept: float) -> str:
    if layer.unchanged and layer.frozen:
        return "they were never updated, as the layer is frozen; set its trainable to True"
    if layer.unchanged:
        return (
            "they were never updated; pass the training argument to the layer, and check that its"
            " momentum is below 1"
        )
    if layer.kept > kept:
        return (
            "they lag behind; momentum is too high for so few steps, so"
            f" {100 * layer.kept:.0f} % of their value is from before training; lower momentum,"
            " train longer or call kdist.recalibrate_batch_norm"
        )
    # Statistics of few values are this far apart by chance: four times their standard error.
    if layer.apart > max(replica_gap, 4 / np.sqrt(layer.values)):
        return (
            f"the replicas' rows differ by {layer.apart:.2f} and the layer is not synchronized, so"
            " no moving statistics can fit all replicas;"
            ' call kdist.convert_batch_norm(model, to="synchronized")'
        )
    if layer.values < SMALL_BATCH:
        return (
            f"the batch per replica is too small, {layer.values:.0f} values per channel are too few"
            f" for statistics (fewer than {SMALL_BATCH}); use larger batches, synchronize the"
            ' replicas or call kdist.convert_batch_norm(model, to="group")'
        )
    return (
        "the weights change faster than the statistics can follow, or the batch differs from the"
        " training data; lower the learning rate or momentum, or call kdist.recalibrate_batch_norm"
    )


def _doubles(values: Any) -> Any:
    return np.asarray(values, "float64")
