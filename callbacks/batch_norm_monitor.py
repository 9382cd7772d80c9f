"""`BatchNormMonitor`: check after every epoch that moving statistics fit the data."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from ..errors import UserError
from ..layers.batch_norm_diagnosis import (
    LayerGap,
    check_model_accepts,
    diagnose,
    measure_distance,
    observe_moments,
    spread_over_replicas,
    stateless_loss,
)
from ..layers.convert_batch_norm import batch_norms
from ..layers.input_moments import merge_input_moments
from .resumable import ResumableCallback


class BatchNormMonitor(ResumableCallback):
    """Checks whether batch norms' moving statistics fit the data, and explains a misfit.

    At the end of every epoch the model runs twice on the same batch: in training mode, and in
    inference mode. The callback adds these values to `logs`:

    * `batch_norm_gap`: the largest distance of a layer's moving statistics from the batch's
      statistics. Two values are averaged over the layer's channels: |mean - moving mean| / moving
      standard deviation, and |log(variance / moving variance)|. The larger average is the distance.
      Epsilon is added to all variances.
    * `batch_norm_replica_gap`: the largest distance, computed in the same way, between the moving
      statistics of replica 0 and of another replica of this worker. 0 on one replica. A saved model
      has the moving statistics of replica 0.
    * `loss_in_training_mode` and `loss_in_inference_mode`: the model's loss on the batch.

    If a gap, or the excess of the loss in inference mode, is above its threshold, the callback
    prints a line with the worst layer and the likely cause. Thresholds and causes are in
    `kdist/layers/batch_norm_diagnosis.py`.

    No variable of the model changes, including moving statistics, seeds and Keras metrics. (A raw
    `tf.Variable` that a layer assigns to may change.) In training mode dropout is active. Therefore
    `loss_in_training_mode` and the statistics after a dropout layer include its noise, and the
    losses differ by more than batch norm explains. Unsynchronized batch norms normalize each
    replica's rows separately, as in training; inference uses the moving statistics of replica 0.

    Args:
        batch: A batch of the training data, `(x, y)` or `(x, y, sample_weight)`, of arrays or
            nested arrays, with as many samples as the global batch in training: statistics of fewer
            samples are noisier, and the likely cause depends on the number of samples.
        verbose: 0 prints nothing and only fills `logs`.

    Attributes:
        gaps: The `LayerGap` of every batch norm after the last epoch.
        diagnosis: The line of the last epoch, also with `verbose=0`; `None` if all gaps were small.
        steps: Steps of training so far.

    Raises:
        UserError: When training begins: the model has no batch norm, or cannot compute its loss on
            the batch.

    Examples:
        ```python
        monitor = BatchNormMonitor(batch=(x_train[:128], y_train[:128]))
        history = model.fit(x_train, y_train, batch_size=128, callbacks=[monitor])
        history.history["batch_norm_gap"]
        ```

    Source: Wu & Johnson 2021, "Rethinking 'Batch' in BatchNorm", sections 3 and 4.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"steps": 0}
    steps: int

    def __init__(self, *, batch: Any, verbose: int = 1) -> None:
        super().__init__(verbose=verbose)
        self.batch = batch
        self.gaps: list[LayerGap] = []
        self.diagnosis: str | None = None
        self._steps_of_epoch = 0
        self._initial_statistics: dict[str, Any] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Record the moving statistics; reject a model or batch that cannot be checked."""
        super().on_train_begin(logs)
        self.gaps, self.diagnosis, self._steps_of_epoch = [], None, 0
        norms = batch_norms(self.model)
        if not norms:
            raise UserError(
                f"{self.model.name} has no keras.layers.BatchNormalization for BatchNormMonitor to"
                " check: remove the callback"
            )
        self._initial_statistics = {
            norm.path: _moving_statistics(self.model, norm) for norm in norms if norm.built
        }
        if self.model.built:
            check_model_accepts(self.model, self.batch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        self._steps_of_epoch = self.steps_of_epoch_after(batch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        self.steps += self._steps_of_epoch
        self._steps_of_epoch = 0
        with observe_moments(self.model) as moments:
            in_training = stateless_loss(self.model, self.batch, training=True)
        in_inference = stateless_loss(self.model, self.batch, training=False)
        # A layer that the model does not call has no statistics to compare.
        self.gaps = [
            self._measure_gap(norm, moments[norm.path])
            for norm in batch_norms(self.model)
            if moments[norm.path]
        ]
        if logs is not None:
            gaps = np.array([(gap.gap, gap.replica_gap) for gap in self.gaps]).reshape(-1, 2)
            largest = np.max(gaps, axis=0, initial=0.0).tolist()
            logs["batch_norm_gap"], logs["batch_norm_replica_gap"] = largest
            logs["loss_in_training_mode"] = in_training
            logs["loss_in_inference_mode"] = in_inference
        self.diagnosis = diagnose(self.gaps, (in_training, in_inference))
        if self.diagnosis:
            self.print_line(self.diagnosis)

    def _measure_gap(self, norm: Any, moments_by_replica: Mapping[int, list[Any]]) -> LayerGap:
        moving = _moving_statistics(self.model, norm)
        # A layer that is called several times has the same moving statistics for all calls.
        batches = [merge_input_moments(tf.stack(calls)) for calls in moments_by_replica.values()]
        statistics = [(batch.mean, batch.variance) for batch in batches]
        initial = self._initial_statistics.get(norm.path)
        with np.errstate(all="ignore"):  # NaN is reported without a warning
            distances = [measure_distance(*pair, norm, moving[0]) for pair in statistics]
            mean, variance = np.mean(distances, axis=0).tolist()
            return LayerGap(
                name=norm.name,
                mean=mean,
                variance=variance,
                replica_gap=spread_over_replicas(moving, norm),
                batch_gap=spread_over_replicas(statistics, norm),
                values_per_channel=min(float(np.min(batch.count)) for batch in batches),
                initial_weight=float(norm.momentum) ** self.steps,
                frozen=not norm.trainable,
                unchanged=self.steps > 0
                and initial is not None
                and np.array_equal(initial, moving),
            )


def _moving_statistics(model: keras.Model, norm: Any) -> Any:
    """Return moving means and variances of local replicas, shape `(replicas, 2, channels)`."""
    local = model.distribute_strategy.experimental_local_results
    copies = zip(local(norm.moving_mean.value), local(norm.moving_variance.value), strict=True)
    return np.array([[mean.numpy(), variance.numpy()] for mean, variance in copies])
