"""The small residual network of the CIFAR-10 speed records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers

from .arguments import check_logit_scale, check_range, check_shape, check_weight_decay
from .scaled_classifier import scaled_classifier
from .wide_resnet import default_batch_norm

_POOLINGS = 3


def ResNet9(  # noqa: N802 - named as a class, as the functions of keras.applications are
    width: int = 64,
    *,
    input_shape: Sequence[int | None],
    classes: int,
    activation: str | Callable[..., Any] = "relu",
    weight_decay: float = 0.0,
    logit_scale: float = 0.125,
    classifier_activation: str | Callable[..., Any] | None = "softmax",
    data_format: str | None = None,
    batch_norm: Callable[..., Any] = default_batch_norm,
    name: str = "resnet9",
) -> Any:
    """Build ResNet-9, the network of the DAWNBench speed records on CIFAR-10.

    A 3x3 convolution with `width` channels; three stages with 2, 4 and 8 times `width` channels,
    each a 3x3 convolution and 2x2 max pooling, the first and the third followed by a residual block
    of two 3x3 convolutions; global max pooling and a dense classifier. Each convolution is followed
    by batch norm and the activation, and neither has a bias. For 10 classes, `width=64` has
    6,573,120 trainable parameters; `width=16` needs a sixteenth of the computation.

    It reaches an accuracy of 0.94 on CIFAR-10 in 24 epochs with batches of 512 images, Nesterov
    momentum 0.9, a learning rate that rises to a peak and falls to 0, label smoothing,
    `RandomCrop(32, padding=4, padding_mode="reflect")` and flips. Layer names depend only on the
    arguments. Under a mixed precision policy the logits are scaled in the policy's variable dtype.

    Args:
        width: Channels ≥ 1 of the first convolution.
        input_shape: Shape of one image, `(height, width, channels)`, or
            `(channels, height, width)` with `data_format="channels_first"`. Height and width are at
            least 8, or `None` if they vary.
        classes: Number of classes ≥ 1.
        activation: Activation of all convolutions: "relu", "gelu", "celu", or a function.
        weight_decay: L2 penalty ≥ 0: `weight_decay * sum(square(kernel))` of every kernel is added
            to the loss.
        logit_scale: Factor > 0 of the logits, an inverse temperature.
        classifier_activation: Activation of the scaled logits; `None` returns the logits.
        data_format: "channels_last" or "channels_first"; `None` uses Keras's own setting.
        batch_norm: As in `WideResNet`.
        name: Name of the model.

    Returns:
        A `keras.Model` from images `(batch, *input_shape)` to `(batch, classes)`, not compiled.

    Raises:
        UserError: An argument is out of the range given above.

    Example:
        >>> model = ResNet9(input_shape=(32, 32, 3), classes=10)
        >>> model.output_shape
        (None, 10)

    Source: Page 2018, "How to Train Your ResNet"; Coleman et al. 2017, "DAWNBench".
    """
    data_format = data_format or keras.config.image_data_format()
    check_range("width", width, 1)
    check_range("classes", classes, 1)
    check_shape(input_shape, data_format, halved=_POOLINGS)
    check_weight_decay(weight_decay)
    check_logit_scale(logit_scale)
    regularizer = keras.regularizers.L2(weight_decay) if weight_decay else None
    parts = _Parts(data_format, activation, batch_norm, regularizer)

    images = keras.Input(tuple(input_shape), name="images")
    x = parts.conv(images, width, "stem")
    for stage in range(1, _POOLINGS + 1):
        x = parts.conv(x, width * 2**stage, f"stage{stage}", pool=True)
        if stage != 2:
            x = parts.residual(x, f"stage{stage}_block")
    x = layers.GlobalMaxPooling2D(data_format=data_format, name="global_pool")(x)
    outputs = scaled_classifier(
        x,
        classes,
        initializer="he_normal",
        regularizer=regularizer,
        logit_scale=logit_scale,
        activation=classifier_activation,
    )
    return keras.Model(images, outputs, name=name)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Parts of one network: each method adds layers to a tensor and returns their output."""

    data_format: str
    activation: str | Callable[..., Any]
    batch_norm: Callable[..., Any]
    regularizer: Any

    def conv(self, x: Any, filters: int, prefix: str, *, pool: bool = False) -> Any:
        x = layers.Conv2D(
            filters,
            3,
            padding="same",
            use_bias=False,
            data_format=self.data_format,
            kernel_initializer="he_normal",
            kernel_regularizer=self.regularizer,
            name=f"{prefix}_conv",
        )(x)
        axis = 1 if self.data_format == "channels_first" else -1
        x = self.batch_norm(name=f"{prefix}_bn", axis=axis)(x)
        x = layers.Activation(self.activation, name=f"{prefix}_activation")(x)
        if not pool:
            return x
        return layers.MaxPooling2D(2, data_format=self.data_format, name=f"{prefix}_pool")(x)

    def residual(self, x: Any, prefix: str) -> Any:
        filters = x.shape[1 if self.data_format == "channels_first" else -1]
        inner = self.conv(self.conv(x, filters, f"{prefix}1"), filters, f"{prefix}2")
        return layers.Add(name=f"{prefix}_add")([x, inner])
