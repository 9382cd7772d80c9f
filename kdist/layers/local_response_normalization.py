"""Local response normalization, which Keras has not."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..arguments import as_integer, number_within
from ..errors import UserError


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


def _normalize(kernels: _Kernels, rows: Any) -> Any:
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


@keras.saving.register_keras_serializable(package="kdist")
class LocalResponseNormalization(keras.layers.Layer):
    """Normalizes each value by the squares of the same pixel's neighboring channels.

    `output = input / (bias + alpha * sum(input[..., i - depth_radius : i + depth_radius + 1] ** 2))
    ** beta`. It computes the same as `tf.nn.local_response_normalization`, several times as fast,
    with the same arguments and defaults. Each sample is normalized by itself, so the result is the
    same on any number of replicas.

    It computes in float32 at least: with float16 inputs, `alpha * sum` would be lost beside `bias`.

    Before a program opens a `.keras` file with this layer, it has to access
    `kdist.layers.LocalResponseNormalization`.

    Args:
        depth_radius: Number of channels on each side whose squares count; 0 for the channel itself
            only.
        bias: Added to the sum; above 0.
        alpha: Factor of the sum of squares (not divided by their number); at least 0.
        beta: Exponent; 0.75 and 0.5 are fastest.
        **kwargs: `name`, `dtype` and so on, of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of rank 2 or more, channels last.

    Raises:
        UserError: An argument is out of range, or the inputs' number of channels is unknown.

    Example:
        >>> layer = LocalResponseNormalization(4, bias=1.0, alpha=0.001 / 9, beta=0.75)
        >>> layer(keras.ops.ones((128, 12, 12, 64))).shape
        TensorShape([128, 12, 12, 64])

    Source: Krizhevsky, Sutskever & Hinton 2012, "ImageNet Classification with Deep Convolutional
    Neural Networks", section 3.3.
    """

    def __init__(
        self,
        depth_radius: int = 5,
        *,
        bias: float = 1.0,
        alpha: float = 1.0,
        beta: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        radius = as_integer(depth_radius)
        if radius is None or radius < 0:
            raise UserError(f"depth_radius={depth_radius!r}; expected an integer of at least 0.")
        self.depth_radius = radius
        self.bias = number_within("bias", bias, above=0)
        self.alpha = number_within("alpha", alpha)
        self.beta = number_within("beta", beta)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Check the inputs' shape."""
        if len(input_shape) < 2 or input_shape[-1] is None:
            raise UserError(
                f"LocalResponseNormalization got inputs of shape {tuple(input_shape)}: pass a batch"
                " with a known number of channels, which are the last axis."
            )
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """Normalize `inputs`; see the class."""
        x = tf.convert_to_tensor(inputs)
        y = local_response_normalization(
            tf.cast(x, keras.backend.result_type(x.dtype.name, "float32")),
            depth_radius=self.depth_radius,
            bias=self.bias,
            alpha=self.alpha,
            beta=self.beta,
        )
        return tf.cast(y, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return {
            **super().get_config(),
            "depth_radius": self.depth_radius,
            "bias": self.bias,
            "alpha": self.alpha,
            "beta": self.beta,
        }
