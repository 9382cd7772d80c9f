"""What the model of a run is called, such as `WRN-16-10`."""

from collections.abc import Mapping
from typing import Any

from .settings import Model


def model_name(settings: Mapping[str, Any]) -> str:
    """Name the WideResNet of these settings after its depth and width.

    Args:
        settings: As in `config.json`; what is missing has its default.

    Example:
        >>> model_name({"depth": 10, "width": 1})
        'WRN-10-1'
    """
    depth, width = (settings.get(name, getattr(Model, name)) for name in ("depth", "width"))
    return f"WRN-{depth}-{width}"
