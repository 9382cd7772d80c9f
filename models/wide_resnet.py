"""Wide residual networks for small images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers

from ..arguments import as_integer, number_within, positive_integer
from ..errors import UserError

STEM_FILTERS = 16
STAGES = 3
SMALLEST_DEPTH = 10


def default_batch_norm(*, name: str, axis: int) -> Any:
    """Create the default batch norm of a `WideResNet`.

    Momentum is 0.9 instead of Keras's 0.99. An epoch on a small data set has about a hundred steps.
    With 0.99, the moving statistics still lag behind the weights when the first epochs are
    validated. Epsilon is 1e-5, as usual in residual networks; it is the smallest value that cuDNN
    accepts.
    """
    return layers.BatchNormalization(axis=axis, momentum=0.9, epsilon=1e-5, name=name)


def WideResNet(  # noqa: N802 - named as a class, as the functions of keras.applications are
    depth: int = 16,
    width: int = 10,
    *,
    input_shape: Sequence[int | None],
    classes: int,
    stem_pool: bool = False,
    dropout: float = 0.01,
    weight_decay: float = 0.0,
    classifier_activation: str | Callable[..., Any] | None = "softmax",
    batch_norm: Callable[..., Any] = default_batch_norm,
    name: str | None = None,
) -> Any:
    """Build a wide residual network, WRN-depth-width, for images of about 32x32 pixels.

    The network is a 3x3 convolution with 16 filters; three stages of `(depth - 4) / 6` residual
    blocks with `16 * width`, `32 * width` and `64 * width` channels; 2x2 max pooling after the
    first and second stage; global average pooling and a dense classifier. A block has two 3x3
    convolutions, each followed by batch norm and ReLU, with dropout in between. The block's input
    is added to its output, through a 1x1 convolution if the number of channels changes.
    Convolutions have a bias.

    Layer names depend only on the arguments (`stage2_block1_conv2`), so weights files stay
    compatible if the process has built models before. Under a mixed precision policy the classifier
    computes in the policy's variable dtype, because probabilities underflow in float16.

    Args:
        depth: Number of weight layers, 6n + 4 with n ≥ 1 blocks per stage: 10, 16, 22, 28, …
        width: Widening factor k ≥ 1 of the stages' channels.
        input_shape: Shape of an image, `(height, width, channels)`. Height and width are at least
            4 (8 with `stem_pool`), or `None` if they vary.
        classes: Number of classes ≥ 1.
        stem_pool: Also halve height and width after the first convolution, by 2x2 max pooling. The
            model then needs a quarter of the computation, and the resolution is still enough for
            28x28 images.
        dropout: Fraction of the activations between a block's convolutions to drop, in [0, 1); with
            0 there are no dropout layers.
        weight_decay: L2 penalty ≥ 0: `weight_decay * sum(square(kernel))` of every kernel (not of
            biases or batch norms) is added to the loss.
        classifier_activation: Activation of the last layer; `None` gives logits.
        batch_norm: A function that makes a normalization layer, called with the keywords `name` and
            `axis` (the channel axis), for example
            `functools.partial(keras.layers.BatchNormalization, momentum=0.99)`. The default makes
            Keras's layer with momentum 0.9 and epsilon 1e-5.
        name: Name of the model; by default `wide_resnet_{depth}_{width}`.

    Returns:
        A `keras.Model` from images `(batch, *input_shape)` to `(batch, classes)`, not compiled.

    Raises:
        UserError: An argument is out of the range given above.

    Examples:
        >>> model = WideResNet(depth=16, width=1, input_shape=(28, 28, 1), classes=10)
        >>> model.output_shape
        (None, 10)

    Source: Zagoruyko & Komodakis 2016, "Wide Residual Networks" (arXiv:1605.07146), with the
    convolution before batch norm and max pooling between the stages, as in keras-contrib.
    """
    positive_integer("width", width, hint="pass the factor that widens the stages")
    positive_integer("classes", classes, hint="pass the number of classes")
    _check_depth(depth)
    _check_input_shape(input_shape, smallest=2 ** (STAGES - 1 + stem_pool))
    number_within("dropout", dropout, below=1, hint="pass the dropout rate, such as 0.3")
    number_within("weight_decay", weight_decay, hint="pass 0 for no weight decay")
    factory = _LayerFactory(batch_norm, dropout, weight_decay)

    images = keras.Input(tuple(input_shape), name="images")
    x = factory.norm_relu(factory.conv(images, STEM_FILTERS, 3, "stem_conv"), "stem")
    if stem_pool:
        x = factory.max_pool(x, "stem_pool")
    for stage in range(1, STAGES + 1):
        filters = STEM_FILTERS * 2 ** (stage - 1) * width
        for number in range(1, (depth - 4) // 6 + 1):
            x = factory.residual_block(x, filters, f"stage{stage}_block{number}")
        if stage < STAGES:
            x = factory.max_pool(x, f"stage{stage}_pool")
    outputs = factory.classify(x, classes, classifier_activation)
    return keras.Model(images, outputs, name=name or f"wide_resnet_{depth}_{width}")


@dataclasses.dataclass(frozen=True)
class _LayerFactory:
    """Layers of a `WideResNet`: each method applies new layers to `x` and returns the output."""

    batch_norm: Callable[..., Any]
    dropout: float
    weight_decay: float

    def conv(self, x: Any, filters: int, size: int, name: str) -> Any:
        return layers.Conv2D(
            filters,
            size,
            padding="same",
            data_format="channels_last",
            kernel_initializer="he_normal",
            kernel_regularizer=self.regularizer(),
            name=name,
        )(x)

    def norm_relu(self, x: Any, prefix: str, suffix: str = "") -> Any:
        x = self.batch_norm(name=f"{prefix}_bn{suffix}", axis=-1)(x)
        return layers.ReLU(name=f"{prefix}_relu{suffix}")(x)

    def residual_block(self, x: Any, filters: int, prefix: str) -> Any:
        keeps_channels = x.shape[-1] == filters
        skip = x if keeps_channels else self.conv(x, filters, 1, f"{prefix}_shortcut")
        x = self.norm_relu(self.conv(x, filters, 3, f"{prefix}_conv1"), prefix, "1")
        if self.dropout:
            x = layers.Dropout(self.dropout, name=f"{prefix}_dropout")(x)
        x = self.norm_relu(self.conv(x, filters, 3, f"{prefix}_conv2"), prefix, "2")
        return layers.Add(name=f"{prefix}_add")([skip, x])

    def max_pool(self, x: Any, name: str) -> Any:
        return layers.MaxPooling2D(2, data_format="channels_last", name=name)(x)

    def classify(self, x: Any, classes: int, activation: str | Callable[..., Any] | None) -> Any:
        x = layers.GlobalAveragePooling2D(data_format="channels_last", name="global_pool")(x)
        return layers.Dense(
            classes,
            activation=activation,
            kernel_initializer="he_normal",
            kernel_regularizer=self.regularizer(),
            dtype=keras.config.dtype_policy().variable_dtype,
            name="classifier",
        )(x)

    def regularizer(self) -> Any:
        return keras.regularizers.L2(self.weight_decay) if self.weight_decay else None


def _check_input_shape(shape: Sequence[int | None], *, smallest: int) -> None:
    """Reject a shape unless it is the height, width and channels of an image."""

    def is_at_least(least: int, size: object) -> bool:
        return (as_integer(size) or 0) >= least

    match shape:
        case [height, width, channels] if is_at_least(1, channels) and all(
            side is None or is_at_least(smallest, side) for side in (height, width)
        ):
            return
    raise UserError(
        f"input_shape is {shape!r}, but has to be (height, width, channels) of one image, without"
        f" the batch axis, such as (28, 28, 1): height and width integers of at least {smallest},"
        " or None, and channels an integer of at least 1"
    )


def _check_depth(depth: int) -> None:
    if as_integer(depth) is None or depth < SMALLEST_DEPTH or (depth - 4) % 6:
        raise UserError(f"depth is {depth!r}, but has to be 10, 16, 22, 28, … (6n + 4)")
