"""How well batch norms' moving statistics fit, epoch by epoch."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..arguments import positive_number
from ..batch_norms import batch_norms
from ..errors import UserError
from ..layers.batch_norm_kernels import merge
from .batch_norm_gaps import (
    LayerGap,
    diagnosis,
    mean_distance,
    replica_distance,
    variance_distance,
)
from .batch_norm_probe import (
    checked_batch,
    observed_moments,
    refuse_what_the_model_does_not_take,
    traceless_loss,
)
from .resumable import ResumableCallback


class BatchNormMonitor(ResumableCallback):
    """Watches whether batch norms' moving statistics fit, and says why where they do not.

    At the end of every epoch the model sees one batch, always the same, once in training mode and
    once in inference mode, and these go into `logs`:

    * `batch_norm_gap`: the largest distance, over layers, between the batch's statistics and the
      moving ones. A layer's is the larger of |mean - moving mean| in moving standard deviations and
      of |log(variance / moving variance)|, averaged over channels, epsilon added to variances.
    * `batch_norm_replica_gap`: the largest such distance between the moving statistics of this
      worker's replicas and those of its replica 0, which a file holds. 0 on one replica.
    * `loss_in_training_mode` and `loss_in_inference_mode`: the model's loss on the batch.

    Where a gap, or that between the losses, is beyond its threshold, one line names the worst layer
    and the likely cause: moving statistics that lag, were never updated or differ between replicas,
    replicas whose data differ, or a batch per replica too small to have statistics.

    No variable of the model changes: neither moving statistics nor seeds nor metrics (those of
    Keras; a raw `tf.Variable` that a layer assigns to is out of its reach). In training mode
    dropout is on, so `loss_in_training_mode` and the statistics behind dropout hold its noise, and
    the two losses differ by more than batch norm does. Batch norms that are not synchronized
    normalize the rows of each replica apart, as in training; inference takes the moving statistics
    of replica 0.

    Args:
        batch: One batch as `fit` takes them, `(x, y)` or `(x, y, sample_weight)`, of arrays or
            nested arrays. Take it from the training data and as large as the global batch trained
            with: the statistics of fewer samples are noisier, and causes are told by its size.
        gap_threshold: The largest `batch_norm_gap` that is not worth a line. The default, 0.5, is
            half a standard deviation, or a variance off by a factor of 1.65: beyond the 0.2 to 0.3
            by which the statistics of 16 values are off by chance.
        replica_gap_threshold: The largest `batch_norm_replica_gap` that is not. The default, 0.1,
            is beyond what 16 values a replica leave in averages of momentum 0.9 or more.
        lag_threshold: Moving statistics lag if what they were when training began still has more
            than this weight in them, `momentum ** steps`. The default, 0.1, is reached after 230
            steps of Keras's momentum 0.99.
        loss_threshold: The largest excess of the loss in inference mode over that in training mode,
            as a share of the latter, that is not worth a line. Dropout makes the excess smaller.
        verbose: 0 prints nothing and only fills `logs`.

    Attributes:
        gaps: The `LayerGap` of every batch norm after the last epoch.
        diagnosis: The line that the last epoch printed or, with `verbose=0`, would have printed;
            `None` where all gaps were small.
        steps: Steps of training so far.

    Raises:
        UserError: If an argument is of a wrong kind, or, when training begins, if the model has no
            batch norm or cannot take the batch.

    Example:
        ```python
        monitor = BatchNormMonitor(batch=(x_train[:128], y_train[:128]))
        history = model.fit(x_train, y_train, batch_size=128, callbacks=[monitor])
        history.history["batch_norm_gap"]
        ```

    Source: Wu & Johnson 2021, "Rethinking 'Batch' in BatchNorm", sections 3 and 4.
    """

    fresh_state: ClassVar[Mapping[str, Any]] = {"steps": 0}
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
        """Note the moving statistics, and refuse a model or batch that cannot be looked at."""
        super().on_train_begin(logs)
        self.gaps, self.diagnosis, self._steps_of_epoch = [], None, 0
        norms = _required_batch_norms(self.model)
        self._first = {n.path: _moving_statistics(self.model, n) for n in norms if n.built}
        if self.model.built:
            refuse_what_the_model_does_not_take(self.model, self.batch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count steps: Keras names the last one of an execution."""
        super().on_train_batch_end(batch, logs)
        self._steps_of_epoch = self.steps_until(batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Compare, add the gaps and losses to `logs`, and say what is wrong."""
        super().on_epoch_end(epoch, logs)
        self.steps += self._steps_of_epoch
        self._steps_of_epoch = 0
        with observed_moments(self.model) as moments:
            in_training = traceless_loss(self.model, self.batch, training=True)
        in_inference = traceless_loss(self.model, self.batch, training=False)
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
            self.say(self.diagnosis)

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
            f"{model.name} has no keras.layers.BatchNormalization, which BatchNormMonitor is for: "
            "leave the callback out."
        )
    return norms


def _moving_statistics(model: keras.Model, norm: Any) -> Any:
    """Moving means and variances of every replica of this worker, `(2, replicas, channels)`."""
    local = model.distribute_strategy.experimental_local_results
    return np.array(
        [[v.numpy() for v in local(m.value)] for m in (norm.moving_mean, norm.moving_variance)]
    )


def _checked_threshold(name: str, value: float) -> float:
    mend = 'pass a larger one, or float("inf") for no line'
    return positive_number(name, value, mend=mend, finite=False)
