"""The networks of `kdist train --network`; the models are in `models/`.

A new network needs an entry in `NETWORKS` alone: the option's choices and help text follow.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

Settings = Mapping[str, Any]

# Keras is imported inside the functions: the command line needs only the names.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """A network that can be chosen by its name.

    Attributes:
        title: Name of the network for all sizes.
        settings: Settings of the network that some networks do not have.
        format_name: Returns the network's name for given settings, such as `"WRN-16-10"`.
        note: Text that the help adds to the name; empty if the name is enough.
        build: Makes the model from a run's settings and the keywords `input_shape`, `classes`,
            `weight_decay` (an L2 factor) and `classifier_activation`.
    """

    title: str
    settings: frozenset[str]
    format_name: Callable[[Settings], str]
    build: Callable[..., Any]
    note: str = ""


def _wide_resnet(settings: Settings, **options: Any) -> Any:
    from ..models import WideResNet

    return WideResNet(
        settings["depth"],
        settings["width"],
        stem_pool=settings["stem_pool"],
        dropout=settings["dropout"],
        **options,
    )


def _cifar10_net(_: Settings, **options: Any) -> Any:
    from ..models import Cifar10Net

    return Cifar10Net(**options)


NETWORKS: Mapping[str, Network] = {
    "wide_resnet": Network(
        title="WideResNet",
        settings=frozenset({"depth", "width", "stem_pool", "dropout"}),
        format_name=lambda settings: f"WRN-{settings['depth']}-{settings['width']}",
        build=_wide_resnet,
    ),
    "cifar10_net": Network(
        title="Cifar10Net",
        settings=frozenset(),
        format_name=lambda _: "Cifar10Net",
        build=_cifar10_net,
        note="is the network of TensorFlow's CIFAR-10 tutorial",
    ),
}

if TYPE_CHECKING:
    NetworkName = str
else:
    NetworkName = Literal[tuple(NETWORKS)]

NETWORK_SETTINGS = frozenset().union(*(network.settings for network in NETWORKS.values()))
"""Settings that not every network has."""


NAME_SETTINGS = frozenset({"depth", "width"})
"""Settings that WideResNet's name contains."""
