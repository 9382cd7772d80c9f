"""Functions that build models, in the style of `keras.applications`."""

from .cifar10_net import Cifar10Net
from .wide_resnet import WideResNet

__all__ = ["Cifar10Net", "WideResNet"]
