"""Wide residual networks for small images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import keras
from kdist.arguments import is_real_within
from kdist.errors import UserError
from keras import layers

STEM_FILTERS = 16
STAGES = 3
IMAGE_RANK = 3
SMALLEST_DEPTH = 10
SMALLEST_SIDE = 2 ** (STAGES - 1)  # the side is halved after every stage but the last


def default_batch_norm(*, name: str, axis: int) -> Any:
    """The batch norm of a `WideResNet` unless another is passed.

    Momentum 0.9, not Keras's 0.99: an epoch of a small data set is about a hundred steps, and with
    0.99 the moving statistics still lag behind the weights when the first epochs are validated.
    Epsilon 1e-5, the usual value of residual networks and the smallest that cuDNN accepts.
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
    data_format: str | None = None,
    batch_norm: Callable[..., Any] = default_batch_norm,
    name: str | None = None,
) -> Any:
    """A wide residual network, WRN-depth-width, for images of about 32x32 pixels.

    A 3x3 convolution with 16 filters, three stages of `(depth - 4) / 6` residual blocks with
    `16 * width`, `32 * width` and `64 * width` channels, 2x2 max pooling after the first and the
    second stage, global average pooling and a dense classifier. A block adds two 3x3 convolutions,
    each followed by batch norm and ReLU and with dropout in between, to its input, which passes a
    1x1 convolution where the number of channels changes. Convolutions have a bias.

    Every layer's name follows from the arguments alone (`stage2_block1_conv2`), so weights files
    fit each other whatever was built before in the process. Under a mixed precision policy the
    classifier computes in the policy's variable dtype, as probabilities underflow in float16.

    Args:
        depth: Number of weight layers, 6n + 4 with n ≥ 1 blocks a stage: 10, 16, 22, 28, …
        width: Widening factor k ≥ 1 of the stages' channels.
        input_shape: Shape of one image, `(height, width, channels)`, or
            `(channels, height, width)` with `data_format="channels_first"`. Height and width are
            at least 4 (8 with `stem_pool`), or `None` where they vary.
        classes: Number of classes ≥ 1.
        stem_pool: Halve the image after the first convolution already, by 2x2 max pooling: a
            quarter of the arithmetic, and of 28x28 images the network sees enough.
        dropout: Fraction of a block's inner activations that is dropped, in [0, 1); 0 leaves the
            dropout layers out.
        weight_decay: L2 penalty ≥ 0: `weight_decay * sum(square(kernel))` of every kernel (not of
            biases or batch norms) is added to the loss.
        classifier_activation: Activation of the last layer; `None` gives logits.
        data_format: "channels_last" or "channels_first"; `None` takes Keras's own setting.
            TensorFlow runs convolutions with channels first on GPUs only.
        batch_norm: Makes a normalization layer, called with the keywords `name` and `axis` (that
            of the channels), for instance
            `functools.partial(keras.layers.BatchNormalization, momentum=0.99)`. The default is
            Keras's layer with momentum 0.9 and epsilon 1e-5.
        name: Name of the model; by default `wide_resnet_{depth}_{width}`.

    Returns:
        A `keras.Model` from images `(batch, *input_shape)` to `(batch, classes)`, not compiled.

    Raises:
        UserError: An argument is outside the range given above.

    Example:
        >>> model = WideResNet(depth=16, width=1, input_shape=(28, 28, 1), classes=10)
        >>> model.output_shape
        (None, 10)

    Source: Zagoruyko & Komodakis 2016, "Wide Residual Networks" (arXiv:1605.07146), with the
    convolution before batch norm and max pooling between the stages, as in keras-contrib.
    """
    data_format = data_format or keras.config.image_data_format()
    _check_range("width", width, 1)
    _check_range("classes", classes, 1)
    _check_depth(depth)
    _check_shape(input_shape, data_format, SMALLEST_SIDE * (2 if stem_pool else 1))
    if not is_real_within(dropout, least=0, below=1):
        raise UserError(f"dropout={dropout!r} is not in [0, 1): pass the fraction to drop.")
    if not is_real_within(weight_decay, least=0):
        raise UserError(f"weight_decay={weight_decay!r} is not a number ≥ 0; 0 means none.")

    axis = 1 if data_format == "channels_first" else -1

    def regularizer() -> Any:
        return keras.regularizers.L2(weight_decay) if weight_decay else None

    def conv(x: Any, filters: int, size: int, layer_name: str) -> Any:
        return layers.Conv2D(
            filters,
            size,
            padding="same",
            data_format=data_format,
            kernel_initializer="he_normal",
            kernel_regularizer=regularizer(),
            name=layer_name,
        )(x)

    def norm_relu(x: Any, prefix: str, number: str = "") -> Any:
        x = batch_norm(name=f"{prefix}_bn{number}", axis=axis)(x)
        return layers.ReLU(name=f"{prefix}_relu{number}")(x)

    def block(x: Any, filters: int, prefix: str) -> Any:
        skip = x if x.shape[axis] == filters else conv(x, filters, 1, f"{prefix}_shortcut")
        x = norm_relu(conv(x, filters, 3, f"{prefix}_conv1"), prefix, "1")
        if dropout:
            x = layers.Dropout(dropout, name=f"{prefix}_dropout")(x)
        x = norm_relu(conv(x, filters, 3, f"{prefix}_conv2"), prefix, "2")
        return layers.Add(name=f"{prefix}_add")([skip, x])

    images = keras.Input(tuple(input_shape), name="images")
    x = norm_relu(conv(images, STEM_FILTERS, 3, "stem_conv"), "stem")
    if stem_pool:
        x = layers.MaxPooling2D(2, data_format=data_format, name="stem_pool")(x)
    for stage in range(1, STAGES + 1):
        for number in range(1, (depth - 4) // 6 + 1):
            x = block(x, STEM_FILTERS * 2 ** (stage - 1) * width, f"stage{stage}_block{number}")
        if stage < STAGES:
            x = layers.MaxPooling2D(2, data_format=data_format, name=f"stage{stage}_pool")(x)
    x = layers.GlobalAveragePooling2D(data_format=data_format, name="global_pool")(x)
    outputs = layers.Dense(
        classes,
        activation=classifier_activation,
        kernel_initializer="he_normal",
        kernel_regularizer=regularizer(),
        dtype=keras.config.dtype_policy().variable_dtype,
        name="classifier",
    )(x)
    return keras.Model(images, outputs, name=name or f"wide_resnet_{depth}_{width}")


def _check_range(argument: str, value: int, smallest: int) -> None:
    if not _is_int(value) or value < smallest:
        raise UserError(f"{argument}={value!r} is not a whole number ≥ {smallest}.")


def _check_depth(depth: int) -> None:
    if not _is_int(depth) or depth < SMALLEST_DEPTH or (depth - 4) % 6:
        raise UserError(
            f"depth={depth!r} is not 6n + 4 with n ≥ 1 blocks a stage: pass 10, 16, 22, 28, …"
        )


def _check_shape(shape: Sequence[int | None], data_format: str, smallest_side: int) -> None:
    if data_format not in ("channels_first", "channels_last"):
        raise UserError(
            f'data_format={data_format!r} is neither "channels_last" nor "channels_first".'
        )
    first = data_format == "channels_first"
    order = "(channels, height, width)" if first else "(height, width, channels)"
    wrong = f"input_shape={shape!r} is not {order} of one image, without the batch"
    if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != IMAGE_RANK:
        raise UserError(f"{wrong}: pass three numbers, for instance (28, 28, 1).")
    channels, *sides = shape if first else (shape[2], *shape[:2])
    if channels is None or not _is_int(channels) or channels < 1:
        raise UserError(f"{wrong}: channels is {channels!r}, and has to be a whole number ≥ 1.")
    if any(side is not None and (not _is_int(side) or side < smallest_side) for side in sides):
        times = "twice" if smallest_side == SMALLEST_SIDE else "three times"
        raise UserError(
            f"{wrong}: height and width have to be whole numbers ≥ {smallest_side}, as the sides "
            f"are halved {times}, or None."
        )


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
