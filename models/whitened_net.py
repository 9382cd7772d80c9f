"""The network of the fastest training runs on CIFAR-10, whose first layer whitens its input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import layers

from ..errors import UserError
from ..layers import ScaledBias
from .arguments import check_logit_scale, check_range, check_shape, check_weight_decay
from .scaled_classifier import scaled_classifier

_SIZE = 2  # of the patches that are whitened
_POOLINGS = 3
_LEAST_DEPTH = 2
_LEAST_SIDE = 2**_POOLINGS + 1
_EPSILON = 5e-4
_CHANNELS_LAST = "channels_last"


def WhitenedNet(  # noqa: N802 - named as a class, as the functions of keras.applications are
    width: int = 64,
    *,
    stage_depth: int = 2,
    input_shape: Sequence[int],
    classes: int,
    whitening: npt.ArrayLike | None = None,
    activation: str | Callable[..., Any] = "gelu",
    weight_decay: float = 0.0,
    bias_factor: float = 8.0,
    logit_scale: float = 1 / 9,
    classifier_activation: str | Callable[..., Any] | None = "softmax",
    name: str = "whitened_net",
) -> Any:
    """Build a small convolutional network that learns fast, after Jordan's airbench.

    A frozen 2x2 convolution that whitens the patches of its input, with a trainable bias; three
    stages of `stage_depth` 3x3 convolutions with `width`, `4 * width` and `4 * width` channels, the
    first followed by 2x2 max pooling, all by batch norm and the activation; global max pooling and
    a dense classifier, whose logits are scaled. In stages of more than two convolutions, a shortcut
    skips all but the first. At the start, convolutions pass their input through: as many of their
    filters as there are input channels are initialized as the identity (a Dirac delta). Batch norms
    have no gamma, and instead of beta a `ScaledBias`, which learns `bias_factor ** 2` times as
    fast. For 10 classes of 32x32x3 images, `width=64` has 1,971,352 trainable parameters.

    The images are channels last. Under a mixed precision policy the logits are scaled in the
    policy's variable dtype.

    Args:
        width: Channels ≥ 1 of the first stage.
        stage_depth: Convolutions ≥ 2 of each stage.
        input_shape: Shape of one image, `(height, width, channels)`, each side at least 9.
        classes: Number of classes ≥ 1.
        whitening: Kernel of the first convolution, `(2, 2, channels, filters)`, from
            `whitening_kernel`. `None` leaves it random.
        activation: Activation of all convolutions.
        weight_decay: L2 penalty ≥ 0 on every trainable kernel.
        bias_factor: Factor > 0 of the biases of batch norms; 1 lets them learn as fast as the rest.
        logit_scale: Factor > 0 of the logits, an inverse temperature.
        classifier_activation: Activation of the scaled logits; `None` returns the logits.
        name: Name of the model.

    Returns:
        A `keras.Model` from images `(batch, *input_shape)` to `(batch, classes)`, not compiled.

    Raises:
        UserError: An argument is out of the range given above.

    Example:
        >>> kernel = whitening_kernel(images)
        >>> model = WhitenedNet(input_shape=(32, 32, 3), classes=10, whitening=kernel)

    Source: Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (arXiv:2404.00498).
    """
    check_range("width", width, 1)
    check_range("stage_depth", stage_depth, _LEAST_DEPTH)
    check_range("classes", classes, 1)
    _check_shape(input_shape)
    check_weight_decay(weight_decay)
    check_logit_scale(logit_scale)
    kernel = None if whitening is None else _checked(whitening, input_shape[-1])
    filters = 2 * _SIZE**2 * input_shape[-1] if kernel is None else kernel.shape[-1]
    regularizer = keras.regularizers.L2(weight_decay) if weight_decay else None

    images = keras.Input(tuple(input_shape), name="images")
    whitened = layers.Conv2D(
        filters,
        _SIZE,
        use_bias=False,
        data_format=_CHANNELS_LAST,
        trainable=False,
        name="whitening",
    )
    x = ScaledBias(name="whitening_bias")(whitened(images))
    x = layers.Activation(activation, name="whitening_activation")(x)
    parts = _Parts(activation, bias_factor, regularizer)
    for stage, channels in enumerate((width, 4 * width, 4 * width), start=1):
        x = parts.stage(x, channels, stage_depth, f"stage{stage}_")
    x = layers.GlobalMaxPooling2D(data_format=_CHANNELS_LAST, name="global_pool")(x)
    outputs = scaled_classifier(
        x,
        classes,
        initializer=_uniform(),
        regularizer=regularizer,
        logit_scale=logit_scale,
        activation=classifier_activation,
    )
    model = keras.Model(images, outputs, name=name)
    _start_as_identity(model)
    if kernel is not None:
        whitened.kernel.assign(kernel)
    return model


def whitening_kernel(images: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the kernel of a 2x2 convolution that whitens the patches of images.

    Its filters are the eigenvectors of the patches' second moments, each divided by the square root
    of its eigenvalue, and the same filters with the opposite sign. The outputs of the first half
    are uncorrelated, and have variance 1 in the directions in which the patches vary much.

    Args:
        images: Standardized images, `(images, height, width, channels)`; a few thousand are enough.

    Returns:
        The kernel, `(2, 2, channels, 8 * channels)`, with the filters of the largest eigenvalues
        first.

    Raises:
        UserError: There are no such images.

    Example:
        >>> images = np.random.default_rng(0).normal(size=(8, 6, 6, 3))
        >>> whitening_kernel(images).shape
        (2, 2, 3, 24)
    """
    array = np.asarray(images, np.float64)
    if array.ndim != 4 or not array.size or min(array.shape[1:3]) < _SIZE:
        raise UserError(
            f"images of shape {array.shape} have no patches of {_SIZE}x{_SIZE} pixels: pass"
            " standardized images of shape (images, height, width, channels)."
        )
    windows = np.lib.stride_tricks.sliding_window_view(array, (_SIZE, _SIZE), axis=(1, 2))
    channels = array.shape[3]
    # From (…, channels, row, column) to the order of a kernel.
    patches = np.moveaxis(windows, 3, -1).reshape(-1, _SIZE**2 * channels)
    values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
    scaled = (vectors / np.sqrt(np.maximum(values, 0) + _EPSILON))[:, ::-1]
    filters = np.concatenate([scaled, -scaled], axis=1)
    return filters.reshape(_SIZE, _SIZE, channels, -1).astype(np.float32)


def _check_shape(shape: Sequence[int]) -> None:
    check_shape(shape, _CHANNELS_LAST, halved=_POOLINGS, known=True)
    if min(shape[:2]) < _LEAST_SIDE:
        raise UserError(
            f"input_shape={shape!r}: height and width have to be at least {_LEAST_SIDE}, as"
            " the first convolution takes one pixel off, and they are halved three times."
        )


def _checked(whitening: npt.ArrayLike, channels: int) -> npt.NDArray[np.float32]:
    kernel = np.asarray(whitening, np.float32)
    if kernel.ndim != 4 or kernel.shape[:3] != (_SIZE, _SIZE, channels) or not kernel.shape[3]:
        raise UserError(
            f"whitening has the shape {kernel.shape}, expected ({_SIZE}, {_SIZE}, {channels},"
            " filters): pass what whitening_kernel returns for images of this shape."
        )
    return kernel


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Parts of one network: each method adds layers to a tensor and returns their output."""

    activation: str | Callable[..., Any]
    bias_factor: float
    regularizer: Any

    def stage(self, x: Any, channels: int, depth: int, prefix: str) -> Any:
        x = self.active(self.conv(x, channels, prefix, 1, pool=True), prefix, 1)
        shortcut = x if depth > _LEAST_DEPTH else None
        for number in range(2, depth):
            x = self.active(self.conv(x, channels, prefix, number), prefix, number)
        x = self.conv(x, channels, prefix, depth)
        if shortcut is not None:
            x = layers.Add(name=f"{prefix}add")([x, shortcut])
        return self.active(x, prefix, depth)

    def conv(self, x: Any, channels: int, prefix: str, number: int, *, pool: bool = False) -> Any:
        x = layers.Conv2D(
            channels,
            3,
            padding="same",
            use_bias=False,
            data_format=_CHANNELS_LAST,
            kernel_initializer=_uniform(),
            kernel_regularizer=self.regularizer,
            name=f"{prefix}conv{number}",
        )(x)
        if pool:
            x = layers.MaxPooling2D(2, data_format=_CHANNELS_LAST, name=f"{prefix}pool")(x)
        x = _batch_norm(f"{prefix}bn{number}")(x)
        return ScaledBias(self.bias_factor, name=f"{prefix}bias{number}")(x)

    def active(self, x: Any, prefix: str, number: int) -> Any:
        return layers.Activation(self.activation, name=f"{prefix}activation{number}")(x)


def _uniform() -> Any:
    """PyTorch's default: uniform, of variance 1 / (3 * fan_in)."""
    return keras.initializers.VarianceScaling(1 / 3, mode="fan_in", distribution="uniform")


def _batch_norm(name: str) -> Any:
    # Few steps make an epoch, so the moving statistics follow fast.
    return layers.BatchNormalization(
        center=False, scale=False, momentum=0.6, epsilon=1e-5, name=name
    )


def _start_as_identity(model: keras.Model) -> None:
    # Not by initializers, which a file would have to know.
    for layer in model.layers:
        if isinstance(layer, layers.Conv2D) and layer.trainable:
            layer.kernel.assign(_with_identity(keras.ops.convert_to_numpy(layer.kernel)))


def _with_identity(kernel: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make the first filters pass on one input channel each."""
    kernel = np.array(kernel)
    same = min(kernel.shape[2:])
    kernel[..., :same] = 0
    kernel[1, 1, range(same), range(same)] = 1
    return kernel
