"""`BatchNormMonitor`: how well batch norms' moving statistics fit the data, epoch by epoch."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..arguments import positive_number
from ..batch_norm.convert import batch_norms
from ..batch_norm.diagnosis import (
    LayerGap,
    check_model_accepts,
    checked_batch,
    diagnosis,
    mean_distance,
    observed_moments,
    replica_distance,
    stateless_loss,
    variance_distance,
)
from ..errors import UserError
from ..layers.batch_norm_kernels import merge
from .resumable import ResumableCallback


class BatchNormMonitor(ResumableCallback):
    """Checks whether batch norms' moving statistics fit the data, and explains why if not.

    At the end of every epoch the model runs on one batch, always the same, once in training mode
    and once in inference mode. These values are added to `logs`:

    * `batch_norm_gap`: the largest distance, over layers, between the batch's statistics and the
      moving statistics. A layer's distance is the larger of |mean - moving mean| in moving standard
      deviations and |log(variance / moving variance)|, averaged over channels, with epsilon added
      to variances.
    * `batch_norm_replica_gap`: the largest such distance between the moving statistics of any of
      this worker's replicas and those of replica 0, which are the ones saved. 0 on one replica.
    * `loss_in_training_mode` and `loss_in_inference_mode`: the model's loss on the batch.

    If a gap or the difference between the losses is above its threshold, it prints a line with the
    worst layer and the likely cause: moving statistics that lag, were never updated or differ
    between replicas, replicas whose data differ, or a batch per replica that is too small.

    No variable of the model changes: not moving statistics, seeds or Keras metrics. (A raw
    `tf.Variable` that a layer assigns to may change.) In training mode dropout is active, so
    `loss_in_training_mode` and the statistics after a dropout layer include its noise, and the
    losses differ by more than batch norm explains. Unsynchronized batch norms normalize each
    replica's rows separately, as in training; inference uses the moving statistics of replica 0.

    Args:
        batch: One batch as `fit` takes it, `(x, y)` or `(x, y, sample_weight)`, of arrays or nested
            arrays. Take it from the training data, with as many samples as the global batch used in
            training: the statistics of fewer samples are noisier, and the number of samples decides
            which causes are considered.
        gap_threshold: Print a line if `batch_norm_gap` is above this. The default, 0.5, is half a
            standard deviation, or a variance off by a factor of 1.65. The statistics of 16 values
            are off by 0.2 to 0.3 by chance.
        replica_gap_threshold: Print a line if `batch_norm_replica_gap` is above this. The default,
            0.1, is more than chance explains with 16 values per replica and momentum 0.9 or more.
        lag_threshold: Moving statistics count as lagging while the weight of their initial values,
            `momentum ** steps`, is above this. The default, 0.1, is reached after 230 steps with
            Keras's momentum 0.99.
        loss_threshold: Print a line if the loss in inference mode exceeds the loss in training mode
            by more than this fraction of the latter. Dropout makes the excess smaller.
        verbose: 0 prints nothing and only fills `logs`.

    Attributes:
        gaps: The `LayerGap` of every batch norm after the last epoch.
        diagnosis: The line that the last epoch printed (or would have printed, with `verbose=0`);
            `None` if all gaps were small.
        steps: Steps of training so far.

    Raises:
        UserError: If an argument is invalid, or, when training begins, if the model has no batch
            norm or cannot take the batch.

    Example:
        ```python
        monitor = BatchNormMonitor(batch=(x_train[:128], y_train[:128]))
        history = model.fit(x_train, y_train, batch_size=128, callbacks=[monitor])
        history.history["batch_norm_gap"]
        ```

    Source: Wu & Johnson 2021, "Rethinking 'Batch' in BatchNorm", sections 3 and 4.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"steps": 0}
    steps: int

    def __init__(
        self,
        *,
        batch: Any,
        gap_threshold: float = 0.5,
        replica_gap_threshold: float = 0.1,
        lag_threshold: float = 0.1,
        loss_threshold: float = 0.25,
        verbose: int = 1,
    ) -> None:
        super().__init__(verbose=verbose)
        self.batch = checked_batch(batch)
        self.gap_threshold = _checked_threshold("gap_threshold", gap_threshold)
        self.replica_gap_threshold = _checked_threshold(
            "replica_gap_threshold", replica_gap_threshold
        )
        self.lag_threshold = _checked_threshold("lag_threshold", lag_threshold)
        self.loss_threshold = _checked_threshold("loss_threshold", loss_threshold)
        self.gaps: list[LayerGap] = []
        self.diagnosis: str | None = None
        self._steps_of_epoch = 0
        self._first: dict[str, Any] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Note the moving statistics; reject a model or batch that cannot be checked."""
        super().on_train_begin(logs)
        self.gaps, self.diagnosis, self._steps_of_epoch = [], None, 0
        norms = _required_batch_norms(self.model)
        self._first = {n.path: _moving_statistics(self.model, n) for n in norms if n.built}
        if self.model.built:
            check_model_accepts(self.model, self.batch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count the steps of the epoch."""
        super().on_train_batch_end(batch, logs)
        self._steps_of_epoch = self.steps_done(batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Compare the statistics, add gaps and losses to `logs`, and print the diagnosis."""
        super().on_epoch_end(epoch, logs)
        self.steps += self._steps_of_epoch
        self._steps_of_epoch = 0
        with observed_moments(self.model) as moments:
            in_training = stateless_loss(self.model, self.batch, training=True)
        in_inference = stateless_loss(self.model, self.batch, training=False)
        # A layer that the model does not call has nothing to compare.
        self.gaps = [
            self._gap(norm, moments[norm.path])
            for norm in batch_norms(self.model)
            if moments[norm.path]
        ]
        if logs is not None:
            logs["batch_norm_gap"] = float(np.max([gap.gap for gap in self.gaps], initial=0.0))
            logs["batch_norm_replica_gap"] = float(
                np.max([gap.replicas for gap in self.gaps], initial=0.0)
            )
            logs["loss_in_training_mode"] = in_training
            logs["loss_in_inference_mode"] = in_inference
        self.diagnosis = diagnosis(
            self.gaps,
            gap=self.gap_threshold,
            replica_gap=self.replica_gap_threshold,
            kept=self.lag_threshold,
            loss_gap=self.loss_threshold,
            losses=(in_training, in_inference),
        )
        if self.diagnosis:
            self.print_line(self.diagnosis)

    def _gap(self, norm: Any, shares: Mapping[int, list[Any]]) -> LayerGap:
        means, variances = moving = _moving_statistics(self.model, norm)
        # A layer that is called several times keeps one set of statistics for all calls.
        batches = [merge(tf.stack(calls)) for calls in shares.values()]
        first = self._first.get(norm.path)
        with np.errstate(all="ignore"):  # NaN is reported, not warned of
            of_means = [
                mean_distance(b.mean, means[0], variances[0], norm.epsilon) for b in batches
            ]
            of_variances = [
                variance_distance(b.variance, variances[0], norm.epsilon) for b in batches
            ]
            return LayerGap(
                name=norm.name,
                mean=float(np.mean(of_means)),
                variance=float(np.mean(of_variances)),
                replicas=replica_distance(means, variances, norm.epsilon),
                apart=replica_distance(
                    [b.mean for b in batches], [b.variance for b in batches], norm.epsilon
                ),
                values=min(float(np.min(batch.count)) for batch in batches),
                kept=float(norm.momentum) ** self.steps,
                frozen=not norm.trainable,
                unchanged=self.steps > 0 and first is not None and np.array_equal(first, moving),
            )


def _required_batch_norms(model: keras.Model) -> list[Any]:
    norms = batch_norms(model)
    if not norms:
        raise UserError(
            f"{model.name} has no keras.layers.BatchNormalization for BatchNormMonitor to check: "
            "remove the callback."
        )
    return norms


def _moving_statistics(model: keras.Model, norm: Any) -> Any:
    """Moving means and variances of this worker's replicas, shape `(2, replicas, channels)`."""
    local = model.distribute_strategy.experimental_local_results
    return np.array(
        [[v.numpy() for v in local(m.value)] for m in (norm.moving_mean, norm.moving_variance)]
    )


def _checked_threshold(name: str, value: float) -> float:
    hint = 'pass a number above 0, or float("inf") to never print a line'
    return positive_number(name, value, hint=hint, finite=False)
