"""Model builders in the manner of `keras.applications`."""

from .wide_resnet import WideResNet as WideResNet

__all__ = ["WideResNet"]
