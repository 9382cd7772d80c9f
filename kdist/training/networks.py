"""The networks of `kdist train --network`. To add one, add its name and its entry here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .config import TrainConfig

NetworkName = Literal["wide_resnet", "cifar10_net", "resnet9", "whitened_net"]

Images = Callable[[], Any]

# Keras is imported by the functions: the command line asks for the names alone.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network that can be chosen by its name.

    Attributes:
        title: What it is called, whatever its size.
        settings: The settings that it has, of those that not every network has.
        named: Names the network of some settings, such as `"WRN-16-10"`.
        build: Makes the model, from the settings, a function that returns some training images as
            the network sees them, and the keywords `input_shape`, `classes`, `weight_decay` (an L2
            factor) and `classifier_activation`.
    """

    title: str
    settings: frozenset[str]
    named: Callable[[Mapping[str, Any]], str]
    build: Callable[..., Any]


def _wide_resnet(config: TrainConfig, _: Images, **options: Any) -> Any:
    from ..models import WideResNet

    return WideResNet(
        config.depth, config.width, stem_pool=config.stem_pool, dropout=config.dropout, **options
    )


def _cifar10_net(_: TrainConfig, __: Images, **options: Any) -> Any:
    from ..models import Cifar10Net

    return Cifar10Net(**options)


def _resnet9(config: TrainConfig, _: Images, **options: Any) -> Any:
    from ..models import ResNet9

    return ResNet9(config.channels, **options)


def _whitened_net(config: TrainConfig, images: Images, **options: Any) -> Any:
    from ..models import WhitenedNet, whitening_kernel

    return WhitenedNet(config.channels, whitening=whitening_kernel(images()), **options)


NETWORKS: Mapping[NetworkName, Network] = {
    "wide_resnet": Network(
        title="WideResNet",
        settings=frozenset({"depth", "width", "stem_pool", "dropout"}),
        named=lambda settings: f"WRN-{settings['depth']}-{settings['width']}",
        build=_wide_resnet,
    ),
    "cifar10_net": Network(
        title="Cifar10Net", settings=frozenset(), named=lambda _: "Cifar10Net", build=_cifar10_net
    ),
    "resnet9": Network(
        title="ResNet9",
        settings=frozenset({"channels"}),
        named=lambda settings: f"ResNet9-{settings['channels']}",
        build=_resnet9,
    ),
    "whitened_net": Network(
        title="WhitenedNet",
        settings=frozenset({"channels"}),
        named=lambda settings: f"WhitenedNet-{settings['channels']}",
        build=_whitened_net,
    ),
}

SPECIFIC = frozenset().union(*(network.settings for network in NETWORKS.values()))
"""Settings that not every network has."""


SIZES = frozenset({"depth", "width", "channels"})
"""Settings that are part of the name of a model."""


def without_idle(names: Sequence[str], network: NetworkName) -> list[str]:
    """Return the names of settings without those that a network does not have.

    Example:
        >>> without_idle(["depth", "wd"], "cifar10_net")
        ['wd']
    """
    idle = SPECIFIC - NETWORKS[network].settings
    return [name for name in names if name not in idle]
