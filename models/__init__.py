"""Functions that build models, in the style of `keras.applications`."""

from .wide_resnet import WideResNet

__all__ = ["WideResNet"]
