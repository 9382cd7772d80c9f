"""The convolutional network of TensorFlow's CIFAR-10 tutorial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import layers

from ..arguments import check_image_shape, number_within, positive_integer
from ..layers import LocalResponseNormalization


def Cifar10Net(  # noqa: N802 - named as a class, as the functions of keras.applications are
    *,
    input_shape: Sequence[int] = (24, 24, 3),
    classes: int = 10,
    weight_decay: float = 0.002,
    classifier_activation: str | Callable[..., Any] | None = None,
    name: str = "cifar10_net",
) -> Any:
    """Build the network of TensorFlow's CIFAR-10 tutorial, similar to AlexNet, for small images.

    The layers are: a 5x5 convolution with 64 filters and ReLU, 3x3 max pooling with stride 2, local
    response normalization; a second 5x5 convolution with 64 filters and ReLU, local response
    normalization, and pooling; dense layers with 384 and 192 units and ReLU; a dense classifier.
    For images of 24x24x3 and 10 classes the network has 1,068,298 parameters in 10 variables.

    Weights are initialized from truncated normal distributions, with standard deviations 0.05
    (convolutions), 0.04 (dense layers) and 1/192 (classifier). Biases start at 0.1, except the
    biases of the first convolution and of the classifier, which start at 0. Under a mixed precision
    policy the classifier computes in the policy's variable dtype. The images are channels last.

    Args:
        input_shape: Shape of an image, `(height, width, channels)`. The tutorial crops 24x24 of
            CIFAR-10's 32x32 pixels.
        classes: Number of classes ≥ 1.
        weight_decay: L2 penalty ≥ 0 of the kernels of the dense layers with 384 and 192 units:
            `weight_decay * sum(square(kernel))` is added to the loss. The tutorial's factor is
            0.004, twice this default, because its `tf.nn.l2_loss` is half of the sum.
        classifier_activation: Activation of the last layer; `None` gives logits.
        name: Name of the model.

    Returns:
        A `keras.Model` from images `(batch, *input_shape)` to `(batch, classes)`, not compiled.

    Raises:
        UserError: An argument is out of the range given above.

    Example:
        >>> model = Cifar10Net()
        >>> model.count_params()
        1068298

    Source: "Advanced Convolutional Neural Networks" of TensorFlow 1's tutorials (models/tutorials/
    image/cifar10), after Krizhevsky's cuda-convnet.
    """
    positive_integer("classes", classes, hint="pass the number of classes")
    check_image_shape(input_shape, hint="(24, 24, 3): three integers of at least 1")
    number_within("weight_decay", weight_decay, hint="pass 0 for no weight decay")

    images = keras.Input(tuple(input_shape), name="images")
    x = _pool(_conv(images, "conv1", bias=0.0), "pool1")
    x = _normalize(x, "norm1")
    x = _normalize(_conv(x, "conv2", bias=0.1), "norm2")
    x = layers.Flatten(data_format="channels_last", name="flatten")(_pool(x, "pool2"))
    # The tutorial's names of the two dense layers.
    for layer, units in (("local3", 384), ("local4", 192)):
        x = layers.Dense(
            units,
            activation="relu",
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.04),
            bias_initializer=keras.initializers.Constant(0.1),
            kernel_regularizer=keras.regularizers.L2(weight_decay) if weight_decay else None,
            name=layer,
        )(x)
    outputs = layers.Dense(
        classes,
        activation=classifier_activation,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=1 / 192),
        dtype=keras.config.dtype_policy().variable_dtype,
        name="classifier",
    )(x)
    return keras.Model(images, outputs, name=name)


def _conv(x: Any, name: str, *, bias: float) -> Any:
    return layers.Conv2D(
        64,
        5,
        padding="same",
        activation="relu",
        data_format="channels_last",
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.05),
        bias_initializer=keras.initializers.Constant(bias),
        name=name,
    )(x)


def _pool(x: Any, name: str) -> Any:
    pool = layers.MaxPooling2D(3, strides=2, padding="same", data_format="channels_last", name=name)
    return pool(x)


def _normalize(x: Any, name: str) -> Any:
    return LocalResponseNormalization(4, bias=1.0, alpha=0.001 / 9, beta=0.75, name=name)(x)
