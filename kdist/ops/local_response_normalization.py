"""Local response normalization as a product with a band matrix."""

from typing import Any

import numpy as np
import tensorflow as tf


def local_response_normalization(
    inputs: Any, *, depth_radius: int, bias: float, alpha: float, beta: float
) -> Any:
    """Divide each value by `(bias + alpha * sum of squares of the channels around it) ** beta`.

    The sums over neighboring channels are one product with a band matrix, and the gradient is
    another. `tf.nn.local_response_normalization` adds up each sum anew, on one core for its
    gradient.

    Args:
        inputs: float32 or float64, (..., channels), the number of channels known.
        depth_radius: Channels on each side that count.
        bias: Added to the sum of squares.
        alpha: Factor of the sum of squares.
        beta: Exponent.

    Returns:
        The type and shape of `inputs`.
    """
    kernels = _Kernels(inputs.shape[-1], inputs.dtype, depth_radius, bias, alpha, beta)
    rows = tf.reshape(inputs, (-1, inputs.shape[-1]))
    return tf.ensure_shape(tf.reshape(_normalize(kernels, rows), tf.shape(inputs)), inputs.shape)


def _normalize(kernels: "_Kernels", rows: Any) -> Any:
    @tf.custom_gradient  # of half the passes over memory that automatic differentiation takes
    def normalize(rows: Any) -> tuple[Any, Any]:
        power, inverse = kernels.powers(rows)
        return rows * power, lambda upstream: first(rows, upstream, power, inverse)

    def first(rows: Any, upstream: Any, power: Any, inverse: Any) -> Any:
        @tf.custom_gradient
        def gradient(rows: Any, upstream: Any) -> tuple[Any, Any]:
            return kernels.gradient(rows, upstream, power, inverse), second

        def second(upstream_of_gradient: Any) -> Any:
            # The powers were computed where no tape was recording.
            with tf.GradientTape() as tape:
                tape.watch([rows, upstream])
                again = kernels.gradient(rows, upstream, *kernels.powers(rows))
            return tape.gradient(again, [rows, upstream], upstream_of_gradient)

        return gradient(rows, upstream)

    return normalize(rows)


class _Kernels:
    """The arithmetic on rows of channels."""

    def __init__(
        self, channels: int, dtype: Any, radius: int, bias: float, alpha: float, beta: float
    ) -> None:
        places = np.arange(channels)
        near = np.abs(places[:, np.newaxis] - places) <= radius
        self._sums = tf.constant(alpha * near, dtype)
        self._gradient_sums = tf.constant(-2 * alpha * beta * near, dtype)
        self._bias = tf.fill((channels,), tf.constant(bias, dtype))
        self._beta = beta

    def powers(self, rows: Any) -> tuple[Any, Any]:
        """Return `n ** -beta` and `1 / n` of the denominators n."""
        # TensorFlow fuses a product with this addition.
        denominators = tf.nn.bias_add(tf.matmul(tf.square(rows), self._sums), self._bias)
        if self._beta not in (0.5, 0.75):
            return tf.pow(denominators, -self._beta), tf.math.reciprocal(denominators)
        # A tenth of the time of `tf.pow`.
        root = tf.math.rsqrt(denominators)
        power = root if self._beta == 0.5 else root * tf.sqrt(root)
        return power, tf.square(root)

    def gradient(self, rows: Any, upstream: Any, power: Any, inverse: Any) -> Any:
        direct = upstream * power
        return direct + rows * tf.matmul(direct * rows * inverse, self._gradient_sums)
