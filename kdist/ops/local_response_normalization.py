"""Local response normalization as a product with a band matrix."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from .compilation import method


def local_response_normalization(
    inputs: Any, *, depth_radius: int, bias: float, alpha: float, beta: float
) -> Any:
    """Divide each value by `(bias + alpha * sum of squares of the channels around it) ** beta`.

    The sums over neighboring channels are one product with a band matrix, and the gradient is
    another. On CPUs everything else takes one pass over memory, and two for the gradient.
    `tf.nn.local_response_normalization` adds up each sum anew, on one core for its gradient.

    Args:
        inputs: float32 or float64, (..., channels), the number of channels known.
        depth_radius: Channels on each side that count.
        bias: Added to the sum of squares.
        alpha: Factor of the sum of squares.
        beta: Exponent.

    Returns:
        The type and shape of `inputs`.
    """
    kernels = _Kernels(inputs.shape[-1], inputs.dtype.name, depth_radius, bias, alpha, beta)
    outputs_of = method(kernels, "outputs", inputs)

    @tf.custom_gradient  # of half the passes over memory that automatic differentiation takes
    def normalize(x: Any) -> tuple[Any, Any]:
        denominators = kernels.denominators(x)
        return outputs_of(x, denominators), lambda dy: _gradient(kernels, x, dy, denominators)

    return tf.ensure_shape(normalize(inputs), inputs.shape)


def _gradient(kernels: "_Kernels", x: Any, dy: Any, denominators: Any) -> Any:
    to_sum, add_sums = (method(kernels, name, x) for name in ("to_sum", "add_sums"))

    @tf.custom_gradient
    def gradient(x: Any, dy: Any) -> tuple[Any, Any]:
        sums = kernels.gradient_sums(to_sum(x, dy, denominators))
        return add_sums(x, dy, denominators, sums), second

    def second(upstream: Any) -> Any:
        # The denominators were computed where no tape was recording.
        with tf.GradientTape() as tape:
            tape.watch([x, dy])
            again = kernels.denominators(x)
            sums = kernels.gradient_sums(kernels.to_sum(x, dy, again))
            first = kernels.add_sums(x, dy, again, sums)
        return tape.gradient(first, [x, dy], upstream)

    return gradient(x, dy)


@dataclasses.dataclass(frozen=True)
class _Kernels:
    """The arithmetic of one layer, on inputs of any rank."""

    channels: int
    dtype: str
    radius: int
    bias: float
    alpha: float
    beta: float

    def denominators(self, x: Any) -> Any:
        # TensorFlow fuses a product with this addition.
        sums = tf.matmul(self._rows(tf.square(x)), self._band(self.alpha))
        bias = tf.fill((self.channels,), tf.constant(self.bias, self.dtype))
        return tf.reshape(tf.nn.bias_add(sums, bias), tf.shape(x))

    def outputs(self, x: Any, denominators: Any) -> Any:
        return x * self._powers(denominators)[0]

    def to_sum(self, x: Any, dy: Any, denominators: Any) -> Any:
        power, inverse = self._powers(denominators)
        return dy * power * x * inverse

    def gradient_sums(self, values: Any) -> Any:
        sums = tf.matmul(self._rows(values), self._band(-2 * self.alpha * self.beta))
        return tf.reshape(sums, tf.shape(values))

    def add_sums(self, x: Any, dy: Any, denominators: Any, sums: Any) -> Any:
        return dy * self._powers(denominators)[0] + x * sums

    def _rows(self, x: Any) -> Any:
        return tf.reshape(x, (-1, self.channels))

    def _band(self, value: float) -> Any:
        places = np.arange(self.channels)
        near = np.abs(places[:, np.newaxis] - places) <= self.radius
        return tf.constant(value * near, self.dtype)

    def _powers(self, denominators: Any) -> tuple[Any, Any]:
        """Return `n ** -beta` and `1 / n` of the denominators n."""
        if self.beta not in (0.5, 0.75):
            return tf.pow(denominators, -self.beta), tf.math.reciprocal(denominators)
        # A tenth of the time of `tf.pow`.
        root = tf.math.rsqrt(denominators)
        power = root if self.beta == 0.5 else root * tf.sqrt(root)
        return power, tf.square(root)
