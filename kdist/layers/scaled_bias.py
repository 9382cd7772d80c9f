"""`ScaledBias`: a bias that learns faster than the other weights."""

from __future__ import annotations

from typing import Any

import keras

from ..arguments import as_real
from ..errors import UserError


@keras.saving.register_keras_serializable(package="kdist")
class ScaledBias(keras.layers.Layer):
    """Adds a bias to every channel, `output = input + factor * bias`.

    The factor applies both to the gradient of `bias` and to its effect: SGD, with or without
    momentum, changes the added value `factor ** 2` times as fast as a plain bias with the same
    learning rate. So the layer acts like a separate learning rate for the bias, with any single
    optimizer and on any number of replicas.

    Before a program opens a `.keras` file with this layer, it has to access
    `kdist.layers.ScaledBias`.

    Args:
        factor: Above 0; 8 is a learning rate 64 times as large.
        **kwargs: `name`, `dtype` and so on, of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of rank 2 or more, channels last.

    Raises:
        UserError: `factor` is not a finite number above 0.

    Example:
        >>> ScaledBias(8)(keras.ops.ones((2, 3))).shape
        TensorShape([2, 3])
    """

    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        number = as_real(factor)
        if number is None or not 0 < number < float("inf"):
            raise UserError(
                f"factor={factor!r} is not a finite number above 0: pass 1 for a plain bias."
            )
        self.factor = number

    def build(self, input_shape: Any) -> None:
        """Create the bias, which starts at 0."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        """Add the bias."""
        return inputs + self.factor * self.bias

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return {**super().get_config(), "factor": self.factor}
