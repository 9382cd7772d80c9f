"""Batch normalization over the global batch, under any strategy."""

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="kdist")
class SyncBatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization(synchronized=True)`, as a layer with a name.

    Under kdist's strategies, Keras's plain layer does the same: all statistics are statistics of
    the global batch, also with masks and `renorm`. Under TensorFlow's strategies, this layer has
    the statistics of the global batch only for inputs without a mask; with a mask, each replica
    uses the statistics of its own samples.

    Before a program opens a `.keras` file with this layer, it has to access
    `kdist.layers.SyncBatchNormalization`.

    Args:
        axis: The channel axis; 1 with channels first.
        **kwargs: Arguments of `keras.layers.BatchNormalization`, except `synchronized`.

    Examples:
        >>> layer = SyncBatchNormalization(momentum=0.9)
        >>> layer(keras.ops.ones((4, 8, 8, 3)), training=True).shape
        TensorShape([4, 8, 8, 3])

    Source: Ioffe & Szegedy 2015, "Batch Normalization"; statistics over replicas as in Peng et al.
    2018, "MegDet".
    """

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        super().__init__(axis=axis, **{**kwargs, "synchronized": True})
