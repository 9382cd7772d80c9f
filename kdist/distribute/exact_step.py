"""The exact step: several replicas compute what one replica would compute on the global batch.

Each replica computes a loss l_r of its samples such that the sum of l_r * n_r / n over the replicas
is the loss of the global batch, where n_r of the n samples are on replica r. Gradients are summed
over replicas before the optimizer is called. Then each replica runs Keras's optimizer on its local
copy of the variables, so clipping, accumulation, averages and the check for finite gradients get
the same input as on one replica.
"""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from .. import _upstream
from ..batch_norm.find import moving_statistics
from .global_batch import GlobalBatch
from .gradient_norms import GradientNorms, measure_replica


def train_step(
    model: keras.Model, batch: GlobalBatch, data: Any, norms: GradientNorms | None
) -> Any:
    """Run one training step in replica context; return the logs that are not metrics of the model.

    Args:
        model: The model.
        batch: The part of the global batch on this replica.
        data: The step's input on this replica.
        norms: Measures the gradients, if not `None`.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    with tf.GradientTape() as tape:
        y_pred, loss = _forward(model, batch, x, y, sample_weight, training=True)
        # The tape sums the values of a loss with `reduction="none"`, and the replicas' sums add up.
        objective = loss if len(loss.shape) else batch.weight_by_fraction(loss)
        if model.optimizer is not None:
            objective = model.optimizer.scale_loss(objective)
    weights = model.trainable_weights
    if not weights:
        warnings.warn("The model does not have any trainable weights.", stacklevel=2)
    else:
        local_gradients = tape.gradient(objective, weights)
        gradients = batch.gradients.sum_over_replicas(local_gradients, weights)
        if norms is not None:
            fraction = batch.fraction()
            measure_replica(norms, model, local_gradients, gradients, batch.samples, fraction)
        with _upstream.replica_local_variables(model.optimizer, weights):
            model.optimizer.apply(gradients, weights)
    _average_plain_batch_norms(model, batch)
    return _logs(model, batch, x, y, y_pred, sample_weight)


def test_step(model: keras.Model, batch: GlobalBatch, data: Any) -> Any:
    """Run one evaluation step in replica context; return logs that are not metrics of the model."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    y_pred, _ = _forward(model, batch, x, y, sample_weight, training=False)
    return _logs(model, batch, x, y, y_pred, sample_weight)


def predict_step(predict: Callable[[Any], Any], batch: GlobalBatch, data: Any) -> Any:
    """Run one prediction step in replica context."""
    return batch.drop_padding(predict(data))


def custom_step(
    model: keras.Model, step: Callable[[Any], Any], batch: GlobalBatch, data: Any
) -> Any:
    """Run a custom `train_step` or `test_step` in replica context; return its logs."""
    logs = step(data)
    if step.__name__ == "train_step":
        _average_plain_batch_norms(model, batch)
    return _average_over_replicas(batch, logs)


def erase_batch_size(data: Any) -> Any:
    """Make the first axis of a batch unknown: this marks draws of its shape as one per sample."""

    def erase(leaf: Any) -> Any:
        known = isinstance(leaf, tf.Tensor) and leaf.shape.rank and leaf.shape[0] is not None
        if tf.executing_eagerly() or not known:
            return leaf
        return tf.compat.v1.placeholder_with_default(leaf, [None, *leaf.shape[1:]])

    return keras.tree.map_structure(erase, data)


def _forward(
    model: keras.Model, batch: GlobalBatch, x: Any, y: Any, sample_weight: Any, *, training: bool
) -> tuple[Any, Any]:
    y_pred = _upstream.call_model(model, x, training=training)
    loss = _upstream.compute_loss(model, x, y, y_pred, sample_weight, training=training)
    mean = tf.reduce_mean(loss) if len(loss.shape) else loss  # with reduction="none"
    _upstream.loss_tracker(model).update_state(
        batch.zero_if_empty(mean), sample_weight=batch.samples
    )
    return y_pred, loss


def _logs(
    model: keras.Model, batch: GlobalBatch, x: Any, y: Any, y_pred: Any, sample_weight: Any
) -> Any:
    """Update the metrics; return the logs of a custom `compute_metrics`.

    Several workers also sum all metrics here, as Keras would sum every variable by itself.
    """
    logs = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    if batch.has_global_results:
        return _average_over_replicas(batch, logs)
    if not tf.distribute.get_strategy().sums_metrics_in_step:
        return {}
    states = _upstream.metric_states(model)
    totals = batch.metrics.all_reduce(states)
    mapping = [(variable, total) for (variable, _), total in zip(states, totals, strict=True)]
    with keras.StatelessScope(state_mapping=mapping):
        return model.get_metrics_result()


def _average_over_replicas(batch: GlobalBatch, logs: Any) -> Any:
    leaves = keras.tree.flatten(logs)
    numbers = [index for index, leaf in enumerate(leaves) if _is_number(leaf)]
    if not numbers:
        return logs
    for index, mean in zip(numbers, batch.losses.mean([leaves[i] for i in numbers]), strict=True):
        leaves[index] = mean
    return keras.tree.pack_sequence_as(logs, leaves)


def _is_number(leaf: Any) -> bool:
    if leaf is None or isinstance(leaf, str):
        return False
    return bool(tf.convert_to_tensor(leaf).dtype not in (tf.string, tf.bool))


def _average_plain_batch_norms(model: keras.Model, batch: GlobalBatch) -> None:
    """Average the moving statistics: only those of replica 0 are saved (keras#14372)."""
    moving = moving_statistics(model)
    if moving:
        for variable, mean in zip(
            moving, batch.losses.mean([v.value for v in moving]), strict=True
        ):
            variable.assign(mean)
