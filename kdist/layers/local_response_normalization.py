"""`LocalResponseNormalization`: `tf.nn.local_response_normalization` as a Keras layer."""

from typing import Any

import keras
import numpy as np
from keras import ops

from ..arguments import as_integer, number_within
from ..errors import UserError


@keras.saving.register_keras_serializable(package="kdist")
class LocalResponseNormalization(keras.layers.Layer):
    """Computes `x / (bias + alpha * sum of squares of near channels) ** beta`, channels last.

    Arguments and defaults are as in `tf.nn.local_response_normalization`. The sums are
    products with a band matrix, in float32 or float64. A program has to import
    `kdist.layers.LocalResponseNormalization` before it opens a `.keras` file with this layer.

    Args:
        depth_radius: Number of channels on each side that are summed; at least 0.
        bias: Number that is added to the sum; above 0.
        alpha: Factor of the sum (not divided by the number of channels); at least 0.
        beta: Exponent; at least 0.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Raises:
        UserError: An argument is out of range, or the number of channels is unknown.

    Source: Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural
    Networks", section 3.3.
    """

    def __init__(
        self,
        depth_radius: int = 5,
        *,
        bias: float = 1,
        alpha: float = 1,
        beta: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        radius = as_integer(depth_radius)
        if radius is None or radius < 0:
            raise UserError(
                f"depth_radius is {depth_radius!r}, but has to be an integer of at least 0: pass"
                " the number of channels to sum on each side"
            )
        self.depth_radius = radius
        self.bias = number_within("bias", bias, above=0)
        self.alpha = number_within("alpha", alpha)
        self.beta = number_within("beta", beta)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Compute the band matrix, of shape `(channels, channels)`."""
        if len(input_shape) < 2 or input_shape[-1] is None:
            raise UserError(
                f"LocalResponseNormalization received inputs of shape {tuple(input_shape)}: pass a"
                " batch with a known number of channels, the last axis"
            )
        channels = np.arange(input_shape[-1])
        self._band = self.alpha * (np.abs(channels[:, None] - channels) <= self.depth_radius)

    def call(self, inputs: Any) -> Any:
        """Normalize `inputs`."""
        x = ops.cast(inputs, keras.backend.result_type(self.compute_dtype, "float32"))
        sums = ops.matmul(ops.square(x), ops.cast(self._band, x.dtype))
        # The power is computed by logarithms: `ops.power` takes several times as long on CPUs.
        return ops.cast(x * ops.exp(-self.beta * ops.log(self.bias + sums)), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        names = ("depth_radius", "bias", "alpha", "beta")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
