"""Recompute batch norms' moving statistics for the current weights."""

import itertools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.models import call_model
from ..errors import UserError
from ..layers.input_moments import (
    input_moments,
    keep_variables,
    merge_input_moments,
    observe_calls,
)
from .convert_batch_norm import batch_norms


def recalibrate_batch_norm(
    model: keras.Model, data: Any, *, steps: int | None = None, batch_size: int = 32
) -> None:
    """Set batch norms' moving statistics to the statistics of `data` under the current weights.

    Moving statistics are averages over past training steps. The averages lag behind weights that
    still change, and after few steps contain much of their initial value. This function computes
    the mean and variance of all inputs of each batch norm with the current weights, over all
    batches together.

    During the computation, batch norms normalize by each batch's statistics, as in training: pass
    batches of the training batch size. All remaining layers are in inference mode. In particular,
    dropout is off, because dropout changes variances (Li et al. 2019, "Understanding the Disharmony
    between Dropout and Batch Normalization by Variance Shift").

    Nothing else in the model changes. The model need not be compiled. After an error the statistics
    are unchanged. Frozen batch norms (`trainable = False`) are skipped. Under a strategy, a single
    device computes the batches, and all replicas get the same statistics.

    Args:
        model: A built model with batch norms.
        data: Arrays, `x` or `(x, y)`; or batches, as a `tf.data.Dataset`, a
            `keras.utils.PyDataset` or any other iterable. A batch is `x`, or a tuple that begins
            with `x`.
        steps: Maximum number of batches; all batches by default. A few thousand samples are enough.
        batch_size: Samples per batch if `data` consists of arrays.

    Raises:
        UserError: The model has no batch norm to recalibrate, or `data` is empty or endless, or the
            statistics are NaN or infinite.

    Examples:
        ```python
        kdist.recalibrate_batch_norm(model, train, steps=100)
        model.evaluate(test)
        ```

    Source: Wu & Johnson 2021, "Rethinking 'Batch' in BatchNorm", section 3 ("PreciseBN").
    """
    all_norms = batch_norms(model)
    norms: list[Any] = [norm for norm in all_norms if norm.trainable and norm.built]
    if not norms:
        why = "the model has no keras.layers.BatchNormalization"
        if all_norms:
            why = (
                "all are frozen (set their trainable to True first) or not built yet (call the"
                " model on a batch)"
            )
        raise UserError(f"{model.name} has no batch norm to recalibrate: {why}")
    moments: list[list[Any]] = [[] for _ in norms]
    measure = tf.function(_measure_batch, autograph=False, reduce_retracing=True)
    for batch in calibration_batches(data, steps, batch_size):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        x = keras.tree.map_structure(tf.convert_to_tensor, x)
        for norm_moments, new in zip(moments, measure(model, norms, x), strict=True):
            norm_moments.append(new)
    if not moments[0]:
        raise UserError("data has no batch: pass at least one batch")
    statistics = [_merge_statistics(*pair) for pair in zip(norms, moments, strict=True)]
    for norm, (mean, variance) in zip(norms, statistics, strict=True):
        norm.moving_mean.assign(mean)
        norm.moving_variance.assign(variance)


def _measure_batch(model: keras.Model, norms: list[Any], x: Any) -> list[Any]:
    """Return the moments of each batch norm's inputs, shape `(calls, 3, channels)`.

    Batch norms run in training mode, all other layers in inference mode.
    """
    found: dict[Any, list[Any]] = {
        norm: [tf.zeros((0, 3, norm.moving_mean.shape[0]), "float64")] for norm in norms
    }

    def observe(norm: Any, call: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        moments = input_moments(norm, tf.convert_to_tensor(inputs), kwargs.get("mask"))
        found[norm].append(tf.cast(moments[tf.newaxis], "float64"))
        return call(inputs, *args, **{**kwargs, "training": True})

    with keep_variables(model), observe_calls(norms, observe):
        call_model(model, x, training=False)
    return [tf.concat(found[norm], 0) for norm in norms]


def _merge_statistics(norm: Any, moments: list[Any]) -> tuple[Any, Any]:
    """Return mean and variance over all batches; without inputs, the layer's moving statistics."""
    total = merge_input_moments(tf.concat(moments, 0))
    mean, variance = total.mean.numpy(), total.variance.numpy()
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise UserError(
            f"{norm.name} received NaN or infinite values, so no statistics were changed: look"
            " for such values in the data and in the model's weights"
        )
    if not np.all(total.count.numpy() > 0):
        return norm.moving_mean.numpy(), norm.moving_variance.numpy()
    return mean, variance


def calibration_batches(data: Any, steps: int | None, batch_size: int) -> Iterable[Any]:
    """Return the first `steps` batches of any data that `recalibrate_batch_norm` accepts."""
    if isinstance(data, np.ndarray | tf.Tensor | tuple | dict):
        data = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
    elif isinstance(data, keras.utils.PyDataset):  # its own iterator would never end
        data = map(data.__getitem__, range(data.num_batches or steps or 0))
    elif not isinstance(data, Iterable) or isinstance(data, tf.distribute.DistributedDataset):
        raise UserError(
            f"data has the type {type(data).__name__}: pass a tf.data.Dataset (not distributed),"
            " arrays, or an iterable of batches"
        )
    is_dataset = isinstance(data, tf.data.Dataset)
    if steps is None and is_dataset and data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise UserError("data is endless: pass the number of batches to take, as in steps=100")
    return itertools.islice(data, steps)
