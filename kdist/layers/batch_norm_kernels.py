"""The arithmetic of batch norm: on one replica, on several replicas, and by fused kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from .._upstream.graphs import is_compiled_by_xla, onednn_is_on
from ..spmd.reduction import merge_moments
from .compiled_kernels import (
    can_compute_apart,
    compiled_method,
    compute_apart,
    worth_compiling,
)

LONGEST_FUSED_SUM = 32  # the window of XLA's `TreeReductionRewriter`, on CPUs


class Moments(NamedTuple):
    """Count, mean and biased variance of each channel's values, as three vectors."""

    count: Any
    mean: Any
    variance: Any


@dataclass(frozen=True)
class Kernels:
    """The functions of batch norm for inputs of a rank, axis and dtype.

    Args:
        rank: Rank of the inputs.
        axis: The channel axis, counted from 0.
        accumulate: Name of the dtype of sums and of vectors such as mean and gamma.
        output: Name of the dtype of the outputs.
        epsilon: Number that is added to the variance.
    """

    rank: int
    axis: int
    accumulate: str
    output: str
    epsilon: float

    def local_moments(self, x: Any, mask: Any = None) -> Any:
        """Return count, mean and sum of squared deviations of this replica's values.

        Returns:
            Shape `(3, channels)`; zeros for channels without values.
        """
        channels = x.shape[self.axis]
        values = self._view(x, self.accumulate)
        if mask is None:
            positions = tf.cast(tf.size(x, tf.int64) // channels, values.dtype)
            count = tf.fill([channels], positions)
            mean = tf.math.divide_no_nan(self._sum(values, x), count)
            squares = tf.math.squared_difference(values, self._spread(mean))
        else:
            mask = self._view(mask, tf.bool)
            count = self._sum(tf.cast(mask, values.dtype), x)
            mean = tf.math.divide_no_nan(self._sum(tf.where(mask, values, 0), x), count)
            squares = tf.where(mask, tf.math.squared_difference(values, self._spread(mean)), 0)
        return tf.stack([count, mean, self._sum(squares, x)])

    def normalize(self, x: Any, moments: Moments, gamma: Any, beta: Any) -> Any:
        """Return `gamma * (x - mean) / sqrt(variance + epsilon) + beta`."""
        values = self._view(x, self.accumulate)
        scale = gamma * self._inverse_deviation(moments)
        y = (values - self._spread(moments.mean)) * self._spread(scale) + self._spread(beta)
        return tf.reshape(tf.cast(y, self.output), tf.shape(x))

    def gradient_sums(self, dy: Any, x: Any, moments: Moments) -> Any:
        """Return this replica's gradients of beta and gamma, shape `(2, channels)`."""
        dy, values = self._view(dy, self.accumulate), self._view(x, self.accumulate)
        products = self._sum(dy * (values - self._spread(moments.mean)), x)
        return tf.stack([self._sum(dy, x), products * self._inverse_deviation(moments)])

    def input_gradient(
        self, dy: Any, x: Any, moments: Moments, gamma: Any, sums: Any, mask: Any = None
    ) -> Any:
        """Return the gradient of the inputs, from the sum of `gradient_sums` over all replicas.

        Each unmasked value also affects mean and variance, and through them all outputs (Ioffe &
        Szegedy 2015, section 3).
        """
        dy, values = self._view(dy, self.accumulate), self._view(x, self.accumulate)
        inverse = self._inverse_deviation(moments)
        by_mean, by_deviation = tf.unstack(tf.math.divide_no_nan(sums, moments.count))
        slope = by_deviation * inverse
        by_moments = values * self._spread(slope) + self._spread(by_mean - moments.mean * slope)
        if mask is not None:
            by_moments = tf.where(self._view(mask, tf.bool), by_moments, 0)
        dx = self._spread(gamma * inverse) * (dy - by_moments)
        return tf.reshape(tf.cast(dx, x.dtype), tf.shape(x))

    def forward(self, x: Any, gamma: Any, beta: Any, mask: Any = None) -> tuple[Any, Moments]:
        """Return outputs and moments on a single replica."""
        moments = merge(self.local_moments(x, mask)[tf.newaxis])
        return self.normalize(x, moments, gamma, beta), moments

    def backward(
        self, dy: Any, x: Any, moments: Moments, gamma: Any, mask: Any = None
    ) -> tuple[Any, Any]:
        """Return input gradient and `gradient_sums` on a single replica."""
        sums = self.gradient_sums(dy, x, moments)
        return self.input_gradient(dy, x, moments, gamma, sums, mask), sums

    @property
    def _channels_last(self) -> bool:
        return self.axis == self.rank - 1

    def _view(self, x: Any, dtype: Any) -> Any:
        """Reshape `x` to (positions, channels) or (positions, channels, positions)."""
        # XLA reduces several axes three times more slowly than a single axis.
        x, shape = tf.cast(x, dtype), tf.shape(x)
        if self._channels_last:
            return tf.reshape(x, (-1, x.shape[-1]))
        before, after = (tf.reduce_prod(s) for s in (shape[: self.axis], shape[self.axis + 1 :]))
        return tf.reshape(x, (before, x.shape[self.axis], after))

    def _sum(self, values: Any, x: Any) -> Any:
        """Sum a view of inputs over positions, in steps; `x` tells the shape of the inputs.

        Steps limit the rounding error of long sums. In compiled methods, short sums are also
        faster.
        """
        if not self._channels_last:
            return tf.reduce_sum(tf.reduce_sum(values, 2), 0)
        channels = values.shape[1]
        if can_compute_apart():
            for length in _sum_lengths(math.prod(x.shape[1:-1])):
                values = tf.pad(values, ((0, -tf.shape(values)[0] % length), (0, 0)))
                sums = tf.reduce_sum(tf.reshape(values, (-1, length, channels)), 1)
                values = compute_apart(sums)
            return tf.reduce_sum(values, 0)
        row = tf.shape(x)[-2] if self.rank > 2 else 1
        rows = tf.reshape(values, (-1, row * channels))
        return tf.reduce_sum(tf.reshape(tf.reduce_sum(rows, 0), (-1, channels)), 0)

    def _spread(self, vector: Any) -> Any:
        return vector if self._channels_last else vector[:, tf.newaxis]

    def _inverse_deviation(self, moments: Moments) -> Any:
        return tf.math.rsqrt(moments.variance + tf.constant(self.epsilon, moments.variance.dtype))


def _sum_lengths(positions: int) -> list[int]:
    """Return the lengths of the sums, level by level, that add up a batch of samples.

    XLA computes a short sum together with its summands, but stores the summands of a long sum
    first. A long sum occurs only if the number of positions of a sample has a factor without
    divisors from 2 to `LONGEST_FUSED_SUM`. The last two levels add up the samples. The number of
    samples may vary, so zeros fill up the last sum. A batch of single positions has no levels.
    """
    if positions == 1:
        return []
    lengths = []
    while positions > 1:
        short = (n for n in range(LONGEST_FUSED_SUM, 1, -1) if positions % n == 0)
        lengths.append(next(short, positions))
        positions //= lengths[-1]
    return [*lengths, LONGEST_FUSED_SUM, LONGEST_FUSED_SUM]


def merge(parts: Any) -> Moments:
    """Merge `local_moments` of several batches, shape `(batches, 3, channels)`.

    Moments of replicas are merged before, as the rule of `local_moments` says: `CountedMoments` in
    `spmd/reduction.py`. Without values, count, mean and variance are 0.
    """
    counts, means, squares = tf.unstack(parts, axis=1)
    count = tf.reduce_sum(counts, 0)
    variances = tf.math.divide_no_nan(squares, counts)
    return Moments(count, *merge_moments(counts, means, variances, tf.maximum(count, 1)))


def broadcast_mask(mask: Any, x: Any) -> Any:
    """Broadcast a mask without a channel axis to the shape of the inputs, as booleans."""
    return tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(x))


def input_moments(norm: Any, x: Any, mask: Any = None) -> Any:
    """Return `Kernels.local_moments` of the inputs of any Keras batch norm layer."""
    rank, dtype = len(x.shape), keras.backend.result_type(x.dtype.name, "float32")
    kernels = Kernels(rank, norm.axis % rank, dtype, dtype, norm.epsilon)
    return kernels.local_moments(x, None if mask is None else broadcast_mask(mask, x))


FUSED_DTYPES = (tf.float32, tf.float16, tf.bfloat16)
ONEDNN_CHANNELS = 8  # float32 numbers in an AVX2 vector
SMALLEST_EPSILON = 1e-5  # cuDNN's CUDNN_BN_MIN_EPSILON


def batch_norm_fusible(x: Any, axis: int, epsilon: float, mask: Any) -> bool:
    """Whether TensorFlow's fused kernel supports `x` with channels on `axis` (counted from 0)."""
    return (
        mask is None
        and x.dtype in FUSED_DTYPES
        and epsilon >= SMALLEST_EPSILON
        and x.shape[axis] is not None
        and (axis == len(x.shape) - 1 or (axis == 1 and x.shape[2:].is_fully_defined()))
    )


def gradient_fusible(x: Any, dy: Any, axis: int, mask: Any) -> bool:
    """Whether the fused gradient kernel supports the inputs, and is fast and accurate.

    The kernel has to be faster than XLA's loops, and as accurate. oneDNN's kernel is both if the
    channels fill its vectors. Otherwise it takes three times as long and adds up value by value, as
    XLA's own kernel does in a compiled step. TensorFlow's kernel takes two to three times as long
    as the loops.
    """
    return (
        mask is None
        and x.dtype == dy.dtype == tf.float32
        and axis == len(x.shape) - 1
        and x.shape[axis] % ONEDNN_CHANNELS == 0
        and onednn_is_on()
        and not is_compiled_by_xla()
    )


def fused_gradient(
    dy: Any, x: Any, moments: Moments, gamma: Any, *, epsilon: float
) -> tuple[Any, Any, Any]:
    """Return the gradients of `x`, gamma and beta, for channels last and samples of known shape.

    oneDNN's own moments lose the variance if the mean is large. Here the moments are arguments, and
    oneDNN's sums over 100,000 values are as accurate as XLA's sums.
    """
    # oneDNN sums image by image: with all positions in a single row, it would compute a single long
    # sum.
    sides = [1, *x.shape[1:-1].as_list()]
    images = (-1, math.prod(sides[:-1]), sides[-1], x.shape[-1])
    dx, dgamma, dbeta, *_ = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=tf.reshape(dy, images),
        x=tf.reshape(x, images),
        scale=gamma,
        reserve_space_1=moments.mean,
        reserve_space_2=moments.variance,
        reserve_space_3=tf.zeros([0]),
        epsilon=epsilon,
        is_training=True,
    )
    return tf.reshape(dx, tf.shape(x)), dgamma, dbeta


def fused_batch_norm(
    x: Any, gamma: Any, beta: Any, *, axis: int, epsilon: float
) -> tuple[Any, Moments]:
    """Return outputs and float32 moments of the batch `x`, which may be empty.

    The kernel supports only images. Inputs of a different rank are reshaped to images with a single
    row or column.
    """
    channels = x.shape[axis]
    last = axis == len(x.shape) - 1
    images = x
    if len(x.shape) != 4:
        shape = (1, -1, 1, channels) if last else (-1, channels, math.prod(x.shape[2:]), 1)
        images = tf.reshape(x, shape)
    nothing = tf.zeros([0])
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=gamma,
        offset=beta,
        mean=nothing,
        variance=nothing,
        epsilon=epsilon,
        data_format="NHWC" if last else "NCHW",
        is_training=True,
    )
    count = tf.cast(tf.size(x, tf.int64) // channels, tf.float32)
    # The kernel's variance is unbiased: for a single value it is NaN on some devices. Without
    # values, mean and variance are NaN.
    biased = tf.math.multiply_no_nan(variance, tf.math.divide_no_nan(count - 1, count))
    nonempty = count > 0
    return tf.reshape(y, tf.shape(x)), Moments(
        tf.broadcast_to(count, [channels]),
        tf.where(nonempty, mean, 0),
        tf.where(nonempty, biased, 0),
    )


def by_inference_kernels(
    x: Any, gamma: Any, beta: Any, *, epsilon: float
) -> tuple[Any, tuple[Any, Any]]:
    """Return outputs, and float32 mean and variance, of a batch with channels last.

    For a step that is divided over GPUs: the forward pass and the backward pass each have one
    exchange. A kernel applies an affine function per channel in one pass over the batch.
    """
    channels = x.shape[-1]

    @tf.custom_gradient
    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        axes = list(range(len(x.shape) - 1))
        values = tf.cast(x, tf.float32)
        images = values if len(x.shape) == 4 else tf.reshape(values, (-1, 1, 1, channels))
        mean, variance = tf.nn.moments(values, axes)

        def affine(scale: Any, offset: Any) -> Any:
            """Return `scale * (x - mean) / sqrt(variance + epsilon) + offset`."""
            y, *_ = tf.raw_ops.FusedBatchNormV3(
                x=images,
                scale=scale,
                offset=offset,
                mean=mean,
                variance=variance,
                epsilon=epsilon,
                is_training=False,
            )
            return y if len(x.shape) == 4 else tf.reshape(y, tf.shape(x))

        def gradient(dy: Any, *_: Any) -> Any:
            dy = tf.cast(_dense_gradient(dy, x), tf.float32)
            normalized = affine(tf.ones(channels), tf.zeros(channels))
            dbeta, dgamma = tf.reduce_sum(dy, axes), tf.reduce_sum(dy * normalized, axes)
            # Each value also affects mean and variance (Ioffe & Szegedy 2015, section 3).
            scale = gamma * tf.math.rsqrt(variance + epsilon)
            share = -scale / _positions(x)
            dx = scale * dy + affine(share * dgamma, share * dbeta)
            return _differentiable_once(tf.cast(dx, x.dtype), dgamma, dbeta)

        return (affine(gamma, beta), (mean, variance)), gradient

    outputs: tuple[Any, tuple[Any, Any]] = batch_norm(x, gamma, beta)
    return outputs


def _positions(x: Any) -> Any:
    """Return the number of values per channel of a batch with channels last, as float32."""
    sample = x.shape[1:-1]
    if sample.is_fully_defined():
        return tf.cast(tf.shape(x)[0], tf.float32) * math.prod(sample)
    return tf.cast(tf.reduce_prod(tf.shape(x)[:-1]), tf.float32)


def in_global_view(
    kernels: Kernels, x: Any, gamma: Any, beta: Any, mask: Any
) -> tuple[Any, Moments]:
    """Return outputs and moments in a step that is divided over replicas.

    Each kernel has a sharding rule, so the forward pass and the backward pass each have one
    collective.
    """

    @tf.custom_gradient
    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        statistics = compiled_method(kernels, "local_moments", x)(x, mask)
        moments = merge(statistics[tf.newaxis])
        y = compiled_method(kernels, "normalize", x)(x, moments, gamma, beta)

        def gradient(dy: Any, *_: Any) -> Any:
            dy = _dense_gradient(dy, x)
            sums = compiled_method(kernels, "gradient_sums", x)(dy, x, moments)
            dx = compiled_method(kernels, "input_gradient", x)(dy, x, moments, gamma, sums, mask)
            return _differentiable_once(dx, sums[1], sums[0])

        return (y, moments), gradient

    outputs: tuple[Any, Moments] = batch_norm(x, gamma, beta)
    return outputs


def on_one_replica(
    kernels: Kernels, x: Any, gamma: Any, beta: Any, mask: Any
) -> tuple[Any, Moments]:
    """Return outputs and moments if a single replica has the whole batch."""
    if not worth_compiling(x):
        return kernels.forward(x, gamma, beta, mask)

    # TensorFlow's own gradient of a compiled function would store all intermediate values.
    @tf.custom_gradient
    def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
        y, moments = compiled_method(kernels, "forward", x)(x, gamma, beta, mask)

        def gradient(dy: Any, *_: Any) -> Any:
            dy = _dense_gradient(dy, x)
            if gradient_fusible(x, dy, kernels.axis, mask):
                gradients = fused_gradient(dy, x, moments, gamma, epsilon=kernels.epsilon)
                return _differentiable_once(*gradients)
            dx, sums = compiled_method(kernels, "backward", x)(dy, x, moments, gamma, mask)
            return _differentiable_once(dx, sums[1], sums[0])

        return (y, moments), gradient

    outputs: tuple[Any, Moments] = batch_norm(x, gamma, beta)
    return outputs


def _dense_gradient(dy: Any, x: Any) -> Any:
    """Convert the gradient of `x` to a dense tensor of the shape of `x`.

    The gradient may consist of indexed slices (`tf.gather`), or have an unknown shape.
    """
    return tf.ensure_shape(tf.convert_to_tensor(dy), x.shape)


def _differentiable_once(*gradients: Any) -> tuple[Any, ...]:
    message = (
        "SyncBatchNormalization has no second derivative; use keras.layers.BatchNormalization."
    )
    return tuple(tf.raw_ops.PreventGradient(input=g, message=message) for g in gradients)
