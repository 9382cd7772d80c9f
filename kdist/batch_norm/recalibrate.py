"""Recompute batch norms' moving statistics for the current weights."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .._upstream.hooks import StrategyHooks
from .._upstream.internals import call_model
from ..arguments import positive_integer
from ..errors import UserError
from ..layers.batch_norm_kernels import input_moments, merge
from .convert import batch_norms


def recalibrate_batch_norm(
    model: keras.Model, data: Any, *, steps: int | None = None, batch_size: int = 32
) -> None:
    """Set batch norms' moving statistics to those of `data` under the model's current weights.

    Moving statistics are averages over past training steps, so they lag behind weights that still
    change, and after few steps they still contain much of their initial value. This function
    computes them for the current weights: the mean and variance of all inputs of each batch norm.
    Batches are weighted by their number of values. The variance is the mean variance within batches
    plus the variance of the batches' means; averaging the variances alone would miss the latter.

    Meanwhile batch norms normalize by each batch's statistics, as in training: pass batches of the
    size used in training. All other layers are in inference mode. Dropout in particular is off, as
    it is when the statistics are used, because it changes variances (Li et al. 2019,
    "Understanding the Disharmony between Dropout and Batch Normalization by Variance Shift").

    Nothing else in the model changes, and it need not be compiled. After an error the old
    statistics are restored. Frozen batch norms (`trainable = False`) are skipped. Under a strategy
    each replica gets its part of every batch.

    Args:
        model: A built model with batch norms.
        data: A `tf.data.Dataset`, a `keras.utils.PyDataset` or another iterable of batches, each
            `x` or a tuple that begins with `x`, as `fit` takes them; or arrays, `x` or `(x, y)`.
        steps: The maximum number of batches; all by default. A few thousand samples are enough.
        batch_size: Samples per batch, over all replicas, if `data` is arrays.

    Raises:
        UserError: The model has no batch norm to recalibrate, or `data` is empty, infinite or gives
            NaN or infinite statistics.

    Example:
        ```python
        kdist.recalibrate_batch_norm(model, train, steps=100)
        model.evaluate(test)
        ```

    Source: Wu & Johnson 2021, "Rethinking 'Batch' in BatchNorm", section 3 ("PreciseBN").
    """
    norms = _recalibrated(model)
    batches = calibration_batches(data, steps, batch_size)
    strategy = model.distribute_strategy
    moving = [v for norm in norms for v in (norm.moving_mean, norm.moving_variance)]
    before = [variable.numpy() for variable in moving]
    with strategy.scope():
        totals = [_Totals(norm) for norm in norms]
        try:
            with contextlib.ExitStack() as stack:
                for norm, total in zip(norms, totals, strict=True):
                    stack.enter_context(_observed(norm, total))
                _pass(model, batches, strategy)
            after = [value for total in totals for value in total.statistics(strategy)]
        except BaseException:
            after = before
            raise
        finally:
            for variable, value in zip(moving, after, strict=True):
                variable.assign(value)


class _Totals:
    """Count, mean and sum of squares of all inputs of a batch norm.

    Args:
        norm: A built `keras.layers.BatchNormalization`.
    """

    def __init__(self, norm: Any) -> None:
        self._norm = norm
        self._sums = tf.Variable(
            tf.zeros((3, norm.moving_mean.shape[0]), "float64"),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
        )

    def add(self, x: Any, mask: Any) -> None:
        """Add the values of a batch."""
        new = tf.cast(input_moments(self._norm, tf.convert_to_tensor(x), mask), "float64")
        both = merge(tf.stack([self._sums.read_value(), new]))
        self._sums.assign(tf.stack([both.count, both.mean, both.variance * both.count]))

    def statistics(self, strategy: tf.distribute.Strategy) -> tuple[Any, Any]:
        """Return mean and variance; the layer's own if it had no inputs."""
        sums = strategy.experimental_local_results(self._sums)[0]  # all copies are equal
        count, mean, variance = (v.numpy() for v in merge(tf.convert_to_tensor(sums)[tf.newaxis]))
        if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
            raise UserError(
                f"{self._norm.name} received values that are NaN or infinite: look for them in the"
                " data and in the model's weights; the statistics are unchanged"
            )
        old = (self._norm.moving_mean.numpy(), self._norm.moving_variance.numpy())
        return np.where(count > 0, mean, old[0]), np.where(count > 0, variance, old[1])


@contextlib.contextmanager
def _observed(norm: Any, totals: _Totals) -> Iterator[None]:
    """Run a batch norm in training mode, whatever the model's mode, and record its inputs."""
    call = norm.call

    def observed_call(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        totals.add(inputs, kwargs.get("mask"))
        return call(inputs, *args, **{**kwargs, "training": True})

    norm.call = observed_call
    try:
        yield
    finally:
        del norm.call


def _pass(model: keras.Model, batches: Iterable[Any], strategy: tf.distribute.Strategy) -> None:
    """Run the model on the batches; kdist's strategies divide each over their replicas."""

    @tf.autograph.experimental.do_not_convert
    def replica_fn(x: Any) -> None:
        call_model(model, x, training=False)

    def run(x: Any) -> None:
        if isinstance(strategy, StrategyHooks):
            strategy.run_batch(replica_fn, x)
        else:
            strategy.run(replica_fn, (x,))

    step = tf.function(run, autograph=False, reduce_retracing=True)
    count = 0
    for count, batch in enumerate(batches, 1):  # noqa: B007 - counted
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        step(keras.tree.map_structure(tf.convert_to_tensor, x))
    if not count:
        raise UserError("received data without any batch: pass at least one")


def _recalibrated(model: Any) -> list[Any]:
    """Return the batch norms of a model that are to be recalibrated."""
    if not isinstance(model, keras.Model):
        raise UserError(f"received {type(model).__name__} for a model: pass a keras.Model")
    norms = [norm for norm in batch_norms(model) if norm.trainable]
    if not norms:
        raise UserError(
            f"{model.name} has no batch norm to recalibrate: there is none, or all are frozen"
            " (set their trainable to True first)"
        )
    for norm in norms:
        if not norm.built:
            raise UserError(
                f"{norm.name} is not built yet: call the model on a batch, or train it, first"
            )
        if norm.renorm:
            raise UserError(
                f"{norm.name} has renorm=True, which uses moving statistics in training, so they"
                " cannot be recomputed: freeze it (trainable = False) to skip it"
            )
    return norms


def calibration_batches(data: Any, steps: int | None, batch_size: int) -> Iterable[Any]:
    """Return the first `steps` batches of `data`, of any kind that `recalibrate_batch_norm` takes.

    Raises:
        UserError: `data` is infinite and `steps` is `None`, or an argument is invalid.
    """
    if steps is not None:
        positive_integer("steps", steps, hint="pass how many batches to take")
    positive_integer("batch_size", batch_size, hint="pass the samples of a batch")
    if isinstance(data, np.ndarray | tf.Tensor | tuple | dict):
        data = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
    if isinstance(data, tf.distribute.DistributedDataset) or not isinstance(
        data, Iterable | keras.utils.PyDataset
    ):
        raise UserError(
            f"received {type(data).__name__} for data: pass a tf.data.Dataset (not distributed),"
            " arrays, or an iterable of batches"
        )
    if steps is None and _is_endless(data):
        raise UserError("received infinite data: say how many batches to take, as in steps=100")
    if isinstance(data, keras.utils.PyDataset):
        # Its own iterator would never end.
        data = map(data.__getitem__, range(data.num_batches or steps or 0))
    return itertools.islice(data, steps)


def _is_endless(data: Any) -> bool:
    if isinstance(data, keras.utils.PyDataset):
        return data.num_batches is None
    return isinstance(data, tf.data.Dataset) and bool(
        data.cardinality() == tf.data.INFINITE_CARDINALITY
    )
