"""`Prediction`: the settings of `kdist bench --predict`."""

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from ..performance.links import Link, LinkName, choose_link
from ..training.config import TrainConfig
from ..training.fields import check_fields
from ..training.settings import BatchSize, Depth, Width


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """Prediction.

    Attributes:
        link: Link between replicas.
        latency_us: Latency in microseconds; by default the link's.
        bandwidth_gb: Bandwidth in GB per second; by default the link's.
        overlap: Fraction of the gradients sent during the backward pass.
        scaling: `weak` keeps the batch per replica, `strong` the global batch.
        depth: Layers of the measured network.
        width: Its widening factor.
        batch_size: Images of the measured step; with your own model, the samples of its global
            batch.

    Raises:
        UserError: A value is out of range; the message names the setting.
    """

    link: LinkName = "nvlink"
    latency_us: Annotated[float, Ge(0)] | None = None
    bandwidth_gb: Annotated[float, Gt(0)] | None = None
    overlap: Annotated[float, Ge(0), Le(1)] = 0.0
    scaling: Literal["weak", "strong"] = "weak"
    depth: Depth = 16
    width: Width = 1
    batch_size: BatchSize = 128

    def __post_init__(self) -> None:
        check_fields(self)
        TrainConfig(depth=self.depth)  # refuses what is not 6n + 4

    def chosen_link(self) -> Link:
        """Return the link, with the latency and bandwidth that were given."""
        return choose_link(
            self.link,
            latency_seconds=None if self.latency_us is None else self.latency_us * 1e-6,
            bytes_per_second=None if self.bandwidth_gb is None else self.bandwidth_gb * 1e9,
        )
