"""Batch normalization over the global batch."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from .._upstream.steps import divides_step
from ..errors import UserError
from .batch_norm_kernels import (
    Kernels,
    Moments,
    batch_norm_fusible,
    broadcast_mask,
    by_inference_kernels,
    fused_batch_norm,
    in_global_view,
    on_one_replica,
)
from .compiled_kernels import worth_compiling


@keras.saving.register_keras_serializable(package="kdist")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """Batch normalization with the statistics of the global batch.

    Every value of the global batch has the same weight in mean and variance, on any replica. With
    uneven or empty replicas and with masks, the statistics equal the statistics on a single
    replica. The forward pass and the backward pass each have one collective. On a single replica
    there is no collective, and the layer equals `keras.layers.BatchNormalization` up to rounding.
    If a channel has no values, its moving statistics do not change.

    Statistics are computed about the mean, in float32 (float64 for float64 inputs), and are
    accurate even if the mean is much larger than the standard deviation.

    With several replicas, or if XLA computes the layer (large fixed shapes on CPUs), second
    derivatives are not supported and raise an error.

    This description applies to kdist's strategies. On several replicas of a different strategy, the
    layer equals `keras.layers.BatchNormalization(synchronized=True)`, and accepts no masks.

    Before a program opens a `.keras` file with this layer, it has to access
    `kdist.layers.SyncBatchNormalization`. Layers that `strategy.build` synchronized are saved as
    Keras's own layers, in files that open without kdist.

    Args:
        axis: The channel axis; 1 with channels first.
        synchronized: Always `True`. The argument exists for configurations of Keras's layer.
        renorm: Always `False`; batch renormalization is not supported.
        **kwargs: All other arguments of `keras.layers.BatchNormalization`.

    Call arguments:
        inputs: Tensor of rank 2 or more.
        training: If true, normalize by the batch's statistics and update the moving statistics.
            Otherwise, or if `trainable` is `False`, normalize by the moving statistics.
        mask: Booleans, with one dimension fewer than the inputs. `False` positions are excluded
            from the statistics.

    Raises:
        UserError: `renorm=True` or `synchronized=False` was passed, a mask has the wrong rank, or a
            mask was passed on several replicas of a different strategy.

    Example:
        >>> layer = SyncBatchNormalization(momentum=0.9)
        >>> layer(keras.ops.ones((4, 8, 8, 3)), training=True).shape
        TensorShape([4, 8, 8, 3])

    Source: Ioffe & Szegedy 2015, "Batch Normalization"; statistics over replicas as in Peng et al.
    2018, "MegDet", merged as in Chan, Golub & LeVeque 1983.
    """

    def __init__(
        self, axis: int = -1, *, synchronized: bool = True, renorm: bool = False, **kwargs: Any
    ) -> None:
        if renorm:
            raise UserError(
                "SyncBatchNormalization got renorm=True, which it does not support: remove it, or "
                "use keras.layers.BatchNormalization(renorm=True, synchronized=True)."
            )
        if not synchronized:
            raise UserError(
                "SyncBatchNormalization got synchronized=False: use "
                "keras.layers.BatchNormalization for statistics of each replica."
            )
        super().__init__(axis=axis, synchronized=True, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Normalize `inputs`; see the class."""
        if not (training and self.trainable):
            return super().call(inputs, training=False, mask=mask)
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            # A step of a different strategy, which TensorFlow runs on each replica.
            if mask is not None:
                raise UserError(
                    "received a mask on several replicas of a strategy that is not kdist's, where"
                    " Keras's batch norm counts each replica's values alone: use"
                    " kdist.MirroredStrategy"
                )
            return super().call(inputs, training=True)
        x = tf.convert_to_tensor(inputs)
        dtype = keras.backend.result_type(x.dtype.name, "float32")
        if not x.dtype.is_floating:
            x = tf.cast(x, dtype)
        if mask is not None:
            mask = _checked_mask(mask, x)
        axis = self.axis % len(x.shape)
        gamma = keras.ops.cast(self.gamma, dtype) if self.scale else tf.ones(x.shape[axis], dtype)
        beta = keras.ops.cast(self.beta, dtype) if self.center else tf.zeros(x.shape[axis], dtype)

        kernels = Kernels(len(x.shape), axis, dtype, self.compute_dtype, self.epsilon)
        is_last = axis == len(x.shape) - 1
        if (
            divides_step()
            and is_last
            and not worth_compiling(x)
            and batch_norm_fusible(x, axis, self.epsilon, mask)
        ):
            y, (mean, variance) = by_inference_kernels(x, gamma, beta, epsilon=self.epsilon)
            moments = Moments(tf.shape(x)[0], mean, variance)
        elif divides_step():
            y, moments = in_global_view(kernels, x, gamma, beta, mask)
        # oneDNN's kernel is avoided for large samples: it adds up float32 value by value. If the
        # mean is 10,000 standard deviations, its variance is 160 instead of 1.
        elif worth_compiling(x) or not batch_norm_fusible(x, axis, self.epsilon, mask):
            y, moments = on_one_replica(kernels, x, gamma, beta, mask)
        else:
            y, moments = fused_batch_norm(x, gamma, beta, axis=axis, epsilon=self.epsilon)
        self._update_moving_statistics(moments)
        return tf.cast(y, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return Keras's configuration, without batch renormalization."""
        return {k: v for k, v in super().get_config().items() if not k.startswith("renorm")}

    def _update_moving_statistics(self, moments: Moments) -> None:
        # Every replica assigns the same values to its own copy, without a collective or an average.
        for variable, value in (
            (self.moving_mean, moments.mean),
            (self.moving_variance, moments.variance),
        ):
            old = keras.ops.cast(variable, value.dtype)
            weight = (1.0 - self.momentum) * tf.minimum(tf.cast(moments.count, value.dtype), 1)
            variable.assign(old + tf.math.multiply_no_nan(value - old, weight))


class SynchronizedKerasLayer(SyncBatchNormalization):
    """A converted `keras.layers.BatchNormalization`: files contain the name of Keras's layer."""

    def __init__(self, axis: int = -1, *, synchronized: bool = False, **kwargs: Any) -> None:
        super().__init__(axis=axis, **kwargs)
        self.saved_as_synchronized = synchronized

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the Keras layer before its conversion."""
        return {**super().get_config(), "synchronized": self.saved_as_synchronized}


SynchronizedKerasLayer.__name__ = SynchronizedKerasLayer.__qualname__ = "BatchNormalization"
SynchronizedKerasLayer.__module__ = "keras.layers"


def _checked_mask(mask: Any, x: Any) -> Any:
    mask = tf.convert_to_tensor(mask)
    if len(mask.shape) != len(x.shape) - 1:
        raise UserError(
            f"SyncBatchNormalization got a mask of shape {mask.shape} for inputs of shape "
            f"{x.shape}: pass a mask of one dimension less than the inputs."
        )
    return broadcast_mask(mask, x)
