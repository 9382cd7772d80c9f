"""Measurements of batch norms on a batch, and likely causes of wrong moving statistics."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.models import call_model, compute_loss
from ..errors import UserError
from ..layers.input_moments import input_moments, keep_variables, observe_calls
from .convert_batch_norm import batch_norms, unsynchronized_batch_norms

_HINT = "pass a batch in the form that fit() takes, as in batch=(x[:128], y[:128])"


def check_model_accepts(model: keras.Model, batch: Any) -> None:
    """Raise `UserError` if the model cannot compute its loss on the batch."""
    try:
        stateless_loss(model, batch, training=True)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        shapes = [np.shape(leaf) for leaf in keras.tree.flatten(batch)]
        raise UserError(
            f"batch has arrays of shapes {', '.join(map(str, shapes))}, and the model"
            f" {model.name!r} does not accept the batch ({error}): {_HINT}"
        ) from error


def stateless_loss(model: keras.Model, batch: Any, *, training: bool) -> float:
    """Return the model's average loss on a batch, without changing a variable of the model."""
    tensors = keras.tree.map_structure(tf.convert_to_tensor, batch)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tensors)
    with keep_variables(model):
        y_pred = call_model(model, x, training=training)
        loss = compute_loss(model, x, y, y_pred, sample_weight, training=training)
        return float(tf.reduce_mean(loss))


@contextlib.contextmanager
def observe_moments(model: keras.Model) -> Iterator[dict[str, dict[int, list[Any]]]]:
    """Record `input_moments` of batch norms' inputs: layer path → replica → moments of each call.

    An unsynchronized batch norm gets the rows of each replica separately, as in training.
    """
    found: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    replicas = model.distribute_strategy.num_replicas_in_sync
    unsynchronized = unsynchronized_batch_norms(model)

    def observe(norm: Any, call: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs, mask = tf.convert_to_tensor(inputs), kwargs.pop("mask", None)
        # TensorFlow splits a batch into parts of equal sizes, rounded up.
        size = -(-inputs.shape[0] // (replicas if norm in unsynchronized else 1))
        outputs = []
        for replica in range(-(-inputs.shape[0] // size)):
            rows = slice(replica * size, (replica + 1) * size)
            masks = {} if mask is None else {"mask": mask[rows]}
            found[norm.path][replica].append(input_moments(norm, inputs[rows], **masks))
            outputs.append(call(inputs[rows], *args, **kwargs, **masks))
        return tf.concat(outputs, 0)

    with observe_calls(batch_norms(model), observe):
        yield found


# Half a standard deviation, or a variance that is off by a factor of 1.65. The statistics of 16
# values deviate by 0.2 to 0.3 by chance.
LARGEST_GAP = 0.5
# With at least 16 values per replica and a momentum of at least 0.9, chance does not explain a
# larger distance.
LARGEST_REPLICA_GAP = 0.1
# Moving statistics lag if more than this share of their value is still the initial value. With
# momentum 0.99, the share is 0.1 after 230 steps.
LARGEST_INITIAL_WEIGHT = 0.1
# Excess of the loss in inference mode, as a fraction; dropout makes the excess smaller.
LARGEST_LOSS_GAP = 0.25
# A smaller absolute excess is ignored, even if it is a large fraction of small losses.
LEAST_LOSS_GAP = 1e-3
# With 16 values per channel, the mean deviates by a quarter of a standard deviation (1 / sqrt(16)),
# and accuracy falls (Wu & He 2018, "Group Normalization", figure 1).
LEAST_VALUES_PER_CHANNEL = 16


@dataclass(frozen=True)
class LayerGap:
    """Measurements of a batch norm after an epoch.

    Args:
        mean: Distance of the batch's mean from the moving mean, see `measure_distance`.
        variance: Distance of the batch's variance from the moving variance.
        replica_gap: Largest distance between the moving statistics of a replica and of replica 0.
        batch_gap: Largest distance between the batch statistics of the replicas' rows; 0 if the
            layer is synchronized, because all replicas then share their statistics.
        values_per_channel: Values per channel in the statistics of a training step. For an
            unsynchronized layer, values per replica.
        initial_weight: Weight of the initial values in the moving statistics, `momentum ** steps`.
        frozen: Whether `trainable` is `False`.
        unchanged: Whether the moving statistics still have exactly their initial values.
    """

    name: str
    mean: float
    variance: float
    replica_gap: float = 0.0
    batch_gap: float = 0.0
    values_per_channel: float = float("inf")
    initial_weight: float = 0.0
    frozen: bool = False
    unchanged: bool = False

    @property
    def gap(self) -> float:
        """The larger distance of mean and variance; NaN if a distance is NaN."""
        return float(np.max([self.mean, self.variance]))


def measure_distance(mean: Any, variance: Any, norm: Any, moving: Any) -> Any:
    """Return the distances of mean and variance from the moving statistics, averaged over channels.

    The distances are |mean - moving mean| in moving standard deviations, and
    |log((variance + epsilon) / (moving variance + epsilon))|, with the layer's epsilon. `moving` is
    the moving mean and variance, or the mean and variance of another replica; all have the shape
    `(channels,)`.
    """
    means = np.asarray([mean, moving[0]], "float64")
    variances = np.asarray([variance, moving[1]], "float64") + norm.epsilon
    by_channel = (means[0] - means[1]) / np.sqrt(variances[1]), np.log(variances[0] / variances[1])
    return np.mean(np.abs(by_channel), axis=1)


def spread_over_replicas(statistics: Any, norm: Any) -> float:
    """Return the largest distance between the statistics of a replica and of replica 0.

    `statistics` are the mean and variance of each replica.
    """
    first = statistics[0]
    distances = [measure_distance(mean, variance, norm, first) for mean, variance in statistics]
    return float(np.max(distances))


def diagnose(layers: Sequence[LayerGap], losses: tuple[float, float]) -> str | None:
    """Describe the worst layer and the likely cause in a line; `None` if all gaps are small.

    Causes are checked from certain to probable: NaN or infinite values, replicas that differ,
    statistics that were never updated, statistics that lag, rows that differ between replicas,
    batches that are too small. `losses` are the losses in training mode and in inference mode, on
    the same batch.
    """
    if not layers:
        return None
    # NaN exceeds every threshold.
    worst = max(layers, key=lambda layer: np.nan_to_num(layer.gap, nan=np.inf))
    drifted = max(layers, key=lambda layer: np.nan_to_num(layer.replica_gap, nan=-1.0))
    if not np.isfinite(worst.gap):
        return (
            f"Batch norm gap: {worst.name}'s moving statistics, or its inputs on the monitor's"
            " batch, are NaN or infinite"
        )
    if drifted.replica_gap > LARGEST_REPLICA_GAP:
        return (
            f"{_describe_gap(drifted)}, and its moving statistics differ by"
            f" {drifted.replica_gap:.2f} between replicas. Likely cause: the replicas drifted, as"
            " the layer is not synchronized; call"
            ' kdist.convert_batch_norm(model, to="synchronized")'
        )
    in_training, in_inference = losses
    losses_differ = in_inference - in_training > max(
        LARGEST_LOSS_GAP * abs(in_training), LEAST_LOSS_GAP
    )
    if worst.gap <= LARGEST_GAP and not losses_differ:
        return None
    loss_text = (
        f"; the loss is {in_training:.3f} in training mode, {in_inference:.3f} in inference mode"
        if losses_differ
        else ""
    )
    return f"{_describe_gap(worst)}{loss_text}. Likely cause: {_likely_cause(worst)}"


def _describe_gap(layer: LayerGap) -> str:
    return (
        f"Batch norm gap: {layer.name}'s moving statistics differ from the statistics of the"
        f" monitor's batch by {layer.mean:.2f} standard deviations in the mean and by"
        f" {layer.variance:.2f} in the log variance"
    )


def _likely_cause(layer: LayerGap) -> str:
    if layer.unchanged and layer.frozen:
        return (
            "the moving statistics were never updated, as the layer is frozen; set layer.trainable"
            " = True"
        )
    if layer.unchanged:
        return (
            "the moving statistics were never updated; pass the training argument to the layer's"
            " call, and a momentum below 1 to its constructor"
        )
    if layer.initial_weight > LARGEST_INITIAL_WEIGHT:
        return (
            "the moving statistics lag: after so few steps"
            f" {100 * layer.initial_weight:.0f} % of their value is still the initial value; lower"
            " momentum, train longer or call kdist.recalibrate_batch_norm"
        )
    # Statistics of few values differ by chance; this limit is four times their standard error.
    if layer.batch_gap > max(LARGEST_REPLICA_GAP, 4 / np.sqrt(layer.values_per_channel)):
        return (
            f"the replicas' rows differ by {layer.batch_gap:.2f}, and the layer is not"
            " synchronized, so no moving statistics can fit all replicas; call"
            ' kdist.convert_batch_norm(model, to="synchronized")'
        )
    if layer.values_per_channel < LEAST_VALUES_PER_CHANNEL:
        return (
            f"the batch per replica has only {layer.values_per_channel:.0f} values per channel (at"
            f" least {LEAST_VALUES_PER_CHANNEL} are needed); use larger batches, or call"
            ' kdist.convert_batch_norm(model, to="synchronized")'
        )
    return (
        "the weights change faster than the statistics can follow, or the batch differs from the"
        " training data; lower the learning rate or momentum, or call kdist.recalibrate_batch_norm"
    )
