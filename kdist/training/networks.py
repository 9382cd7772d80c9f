"""The networks of `kdist train --network`. To add one, add its entry here."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

Settings = Mapping[str, Any]
Images = Callable[[], Any]

STAGE_DEPTH = 2
"""Convolutions of each stage of `whitened_net` by default."""

# Keras is imported by the functions: the command line asks for the names alone.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network that can be chosen by its name.

    Attributes:
        title: What it is called, whatever its size.
        settings: The settings that it has, of those that not every network has.
        named: Names the network of some settings, such as `"WRN-16-10"`.
        note: What the help text adds about its name, if that does not say enough.
        build: Makes the model, from a run's settings, a function that returns some training images
            as the network sees them, and the keywords `input_shape`, `classes`, `weight_decay` (an
            L2 factor) and `classifier_activation`.
    """

    title: str
    settings: frozenset[str]
    named: Callable[[Settings], str]
    build: Callable[..., Any]
    note: str = ""


def _wide_resnet(settings: Settings, _: Images, **options: Any) -> Any:
    from ..models import WideResNet

    return WideResNet(
        settings["depth"],
        settings["width"],
        stem_pool=settings["stem_pool"],
        dropout=settings["dropout"],
        **options,
    )


def _cifar10_net(_: Settings, __: Images, **options: Any) -> Any:
    from ..models import Cifar10Net

    return Cifar10Net(**options)


def _resnet9(settings: Settings, _: Images, **options: Any) -> Any:
    from ..models import ResNet9

    return ResNet9(settings["channels"], **options)


def _whitened_net(settings: Settings, images: Images, **options: Any) -> Any:
    from ..models import WhitenedNet, whitening_kernel

    return WhitenedNet(
        settings["channels"],
        stage_depth=settings["stage_depth"],
        whitening=whitening_kernel(images()),
        **options,
    )


def _name_of_whitened_net(settings: Settings) -> str:
    name, depth = f"WhitenedNet-{settings['channels']}", settings["stage_depth"]
    return name if depth == STAGE_DEPTH else f"{name}x{depth}"


NETWORKS: Mapping[str, Network] = {
    "wide_resnet": Network(
        title="WideResNet",
        settings=frozenset({"depth", "width", "stem_pool", "dropout"}),
        named=lambda settings: f"WRN-{settings['depth']}-{settings['width']}",
        build=_wide_resnet,
    ),
    "cifar10_net": Network(
        title="Cifar10Net",
        settings=frozenset(),
        named=lambda _: "Cifar10Net",
        build=_cifar10_net,
        note="is the network of TensorFlow's CIFAR-10 tutorial",
    ),
    "resnet9": Network(
        title="ResNet9",
        settings=frozenset({"channels"}),
        named=lambda settings: f"ResNet9-{settings['channels']}",
        build=_resnet9,
    ),
    "whitened_net": Network(
        title="WhitenedNet",
        settings=frozenset({"channels", "stage_depth"}),
        named=_name_of_whitened_net,
        build=_whitened_net,
        note="that of the fastest training runs on CIFAR-10",
    ),
}

if TYPE_CHECKING:
    NetworkName = str
else:
    NetworkName = Literal[tuple(NETWORKS)]

SPECIFIC = frozenset().union(*(network.settings for network in NETWORKS.values()))
"""Settings that not every network has."""


SIZES = frozenset({"depth", "width", "channels", "stage_depth"})
"""Settings that are part of the name of a model."""


def without_idle(names: Sequence[str], network: str) -> list[str]:
    """Return the names of settings without those that a network does not have.

    Example:
        >>> without_idle(["depth", "wd"], "cifar10_net")
        ['wd']
    """
    idle = SPECIFIC - NETWORKS[network].settings
    return [name for name in names if name not in idle]
