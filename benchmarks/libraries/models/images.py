"""kimm, medicai: networks of images."""

from typing import Any

import keras
import numpy as np

from ..cases import ROWS, Training, register_case

CLASSES, SIZE = 3, 32


def images(channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(ROWS, SIZE, SIZE, channels)).astype("float32")


def classified(model: Any) -> Training:
    model.compile(
        keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return Training(model, images(), np.arange(ROWS) % CLASSES)


@register_case("kimm", "ConvMixer", built=True)
def conv_mixer() -> Training:
    from kimm._src.models.convmixer import ConvMixer

    return classified(
        ConvMixer(
            depth=2,
            hidden_channels=8,
            patch_size=4,
            kernel_size=3,
            input_shape=(SIZE, SIZE, 3),
            classes=CLASSES,
            weights=None,
        )
    )


@register_case("medicai", "UNet, SparseDiceCELoss")
def unet() -> Training:
    from medicai.losses import SparseDiceCELoss
    from medicai.models import ResNet18, UNet

    encoder = ResNet18(input_shape=(SIZE, SIZE, 1), include_top=False)
    model = UNet(
        encoder=encoder,
        num_classes=CLASSES,
        decoder_filters=(8, 8, 8, 8, 8),
        classifier_activation="softmax",
    )
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9, weight_decay=1e-5),
        SparseDiceCELoss(from_logits=False, num_classes=CLASSES),
    )
    y = np.random.default_rng(1).integers(0, CLASSES, (ROWS, SIZE, SIZE, 1)).astype("float32")
    return Training(model, images(1), y)


@register_case("medicai", "ViT", noise=1e-7)  # its head is float32
def vit() -> Training:
    from medicai.models.vit.vit import ViTVariantsBase

    return classified(
        ViTVariantsBase(
            input_shape=(SIZE, SIZE, 3),
            patch_size=8,
            num_layers=2,
            num_heads=2,
            hidden_dim=8,
            mlp_dim=16,
            use_class_token=True,
            num_classes=CLASSES,
            classifier_activation="softmax",
            dropout=0.1,
        )
    )
