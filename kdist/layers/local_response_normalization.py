"""Local response normalization, which Keras has not."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from ..arguments import as_integer, as_real
from ..errors import UserError
from ..ops.local_response_normalization import local_response_normalization


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
        self.bias = _number("bias", bias, above=True)
        self.alpha = _number("alpha", alpha)
        self.beta = _number("beta", beta)
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


def _number(name: str, value: Any, *, above: bool = False) -> float:
    number = as_real(value)
    if number is None or not 0 <= number < float("inf") or (above and not number):
        bound = "above 0" if above else "of at least 0"
        raise UserError(f"{name}={value!r}; expected a finite number {bound}.")
    return number
