"""The last layers of networks whose logits are scaled, as by a temperature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import layers


def scaled_classifier(
    x: Any,
    classes: int,
    *,
    initializer: Any,
    regularizer: Any,
    logit_scale: float,
    activation: str | Callable[..., Any] | None,
) -> Any:
    """Add a dense layer without bias, whose logits are scaled in the policy's variable dtype.

    Args:
        x: Of shape `(batch, channels)`.
        classes: Number of classes.
        initializer: Of the kernel.
        regularizer: Of the kernel, or `None`.
        logit_scale: Factor of the logits.
        activation: Of the scaled logits; `None` for none.

    Returns:
        Of shape `(batch, classes)`.
    """
    logits = layers.Dense(
        classes,
        use_bias=False,
        kernel_initializer=initializer,
        kernel_regularizer=regularizer,
        name="classifier",
    )(x)
    precise = keras.config.dtype_policy().variable_dtype
    outputs = layers.Rescaling(logit_scale, dtype=precise, name="logits")(logits)
    if activation is None:
        return outputs
    return layers.Activation(activation, dtype=precise, name="output")(outputs)
