"""Padding of inputs with 0 rows, for kernels of TensorFlow that fail without rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

from .stage import Stage

# Types whose kernels are right for inputs with 0 rows, on GPUs and on CPUs without oneDNN:
# TensorFlow's tests have such inputs (2.21).
_RIGHT_WITHOUT_ROWS = {"BiasAdd", "BiasAddGrad", "Conv2D", "Conv2DBackpropFilter"}


def onednn_is_on() -> bool:
    """Whether TensorFlow uses oneDNN's kernels on CPUs."""
    return bool(_pywrap_util_port.IsMklEnabled())


def fails_without_rows(stage: Stage, op: tf.Operation) -> bool:
    """Whether the kernel of a device may be wrong if its input has no rows.

    Without rows, the result of oneDNN's convolution has the number of channels of its input, and
    the gradient of a pooling ends the process (TensorFlow 2.21).
    """
    is_onednn = stage.on_cpus and onednn_is_on()
    return is_onednn or op.type not in _RIGHT_WITHOUT_ROWS


def pad_empty_inputs(
    stage: Stage, op: tf.Operation, inputs: Sequence[tf.Tensor], data: Sequence[int]
) -> list[tf.Tensor]:
    """Add a row of zeros to inputs that have no rows; inputs with rows are not copied."""
    count = tf.shape(inputs[data[0]])[0]
    given = list(inputs)
    for index in data:
        tensor, rank = inputs[index], op.inputs[index].shape.rank

        def pad_rows(tensor: tf.Tensor = tensor, rank: int = rank) -> tf.Tensor:
            return pad_to_one_row(tensor, 0, rank, count)

        given[index] = stage.make_once(padded_key(tensor), pad_rows)
    return given


def padded_key(tensor: tf.Tensor) -> Any:
    """Return the key, in a stage's cache, of a tensor padded to at least one row."""
    return "some rows", tensor.ref()


def pad_to_one_row(
    tensor: tf.Tensor, axis: int, rank: int, count: tf.Tensor, value: int = 0
) -> tf.Tensor:
    """Add a row filled with `value` along an axis, if the number of rows, `count`, is 0."""
    more = tf.stack([tf.maximum(1 - count, 0) if index == axis else 0 for index in range(rank)])
    paddings = tf.stack([tf.zeros_like(more), more], 1)
    # `Pad` would be wrong: oneDNN fuses it into the convolution, like a padding of images.
    filler = tf.constant(value, tensor.dtype) if value else tf.zeros([], tensor.dtype)
    return tf.raw_ops.PadV2(input=tensor, paddings=paddings, constant_values=filler)
