"""What the model of a run is called, such as `WRN-16-10`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .fields import field_names
from .networks import NETWORKS
from .settings import Model


def model_name(settings: Mapping[str, Any]) -> str:
    """Name the network of these settings, or the model of the user's.

    Args:
        settings: As in `config.json`; what is missing has its default.

    Example:
        >>> model_name({"depth": 10, "width": 1}), model_name({"network": "cifar10_net"})
        ('WRN-10-1', 'Cifar10Net')
        >>> model_name({"model": "/home/me/my_model.py:build"})
        'my_model:build'
    """
    if isinstance(settings.get("model"), str):
        path, _, function = settings["model"].rpartition(":")
        return f"{Path(path).stem}:{function}"
    known = {name: settings.get(name, getattr(Model, name)) for name in field_names(Model)}
    network = NETWORKS.get(str(known["network"]))  # none: a folder may be of a later version
    return str(known["network"]) if network is None else network.named(known)
