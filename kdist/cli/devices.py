"""`kdist devices`: parses and calls."""

from typing import Annotated

from cyclopts import Parameter

from ..training.config import TrainConfig
from .integers import parse_integer


def devices(
    *,
    replicas: Annotated[
        int | None,
        Parameter(
            help="As for train; by default every GPU, or else the CPU.", converter=parse_integer
        ),
    ] = None,
) -> None:
    """List the devices that a strategy would use."""
    TrainConfig(replicas=replicas)  # refuses a wrong number before TensorFlow is imported
    from ..distribute.mirrored_strategy import MirroredStrategy
    from ..performance.hardware import device_names

    strategy = MirroredStrategy(replicas=replicas)
    for device, name in zip(strategy.devices, device_names(strategy.devices), strict=True):
        print(f"{device}  {name}")
