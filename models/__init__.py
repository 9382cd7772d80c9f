"""Functions that build models, in the style of `keras.applications`."""

from .cifar10_net import Cifar10Net
from .resnet9 import ResNet9
from .whitened_net import WhitenedNet, whitening_kernel
from .wide_resnet import WideResNet

__all__ = ["Cifar10Net", "ResNet9", "WhitenedNet", "WideResNet", "whitening_kernel"]
