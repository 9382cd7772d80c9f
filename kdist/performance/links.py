"""The link between two replicas as latency and bandwidth, with presets: pure arithmetic."""

import dataclasses
from types import MappingProxyType
from typing import Literal

from ..arguments import is_real_within, positive_number
from ..errors import UserError

LinkName = Literal["pcie", "nvlink", "ethernet"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link:
    """Latency and bandwidth of a link between two replicas.

    A message takes the latency plus its bytes divided by the bandwidth: Hockney's model (1994, "The
    communication challenge for MPP"), alpha and 1 / beta. A ring is as fast as its slowest link, so
    if replicas span machines, use the network's.

    Args:
        name: Its name in tables and errors.
        latency_seconds: Seconds before the first byte, at least 0.
        bytes_per_second: Bandwidth in one direction, per replica or of the network card that the
            replicas of a machine share; above 0, infinity for a link that only has latency.
        source: Where the figures are from.

    Raises:
        UserError: If a figure is out of range.

    Example:
        >>> Link(name="10 GbE", latency_seconds=30e-6, bytes_per_second=1.2e9).source
        'stated by the caller'
    """

    name: str
    latency_seconds: float
    bytes_per_second: float
    source: str = "stated by the caller"

    def __post_init__(self) -> None:
        if not is_real_within(self.latency_seconds, least=0):
            raise UserError(
                f"latency_seconds is {self.latency_seconds!r}, but has to be a finite number of at"
                " least 0: pass seconds, 5e-6 for five microseconds"
            )
        positive_number(
            "bytes_per_second",
            self.bytes_per_second,
            hint="pass bytes, not bits: 12e9 for 12 GB/s",
            finite=False,
        )


_LATENCY = "latency: its src/graph/tuning.cc, commit 01afd20, hwLat, a step of a Simple ring"

# The figures that NCCL chooses an algorithm by: rates that are reached, not those advertised.
LINKS = MappingProxyType(
    {
        "pcie": Link(
            name="PCIe 3.0 x16",
            latency_seconds=5.7e-6,
            bytes_per_second=12e9,
            source=f"NCCL; bandwidth: src/graph/topo.h, PCI_BW; {_LATENCY}, PCI",
        ),
        "nvlink": Link(
            name="NVLink of an A100",
            latency_seconds=3.4e-6,
            bytes_per_second=230e9,
            source="NCCL; bandwidth: github.com/NVIDIA/nccl-tests/issues/149, bus bandwidth of"
            f" 8 A100 SXM4; {_LATENCY}, NVLINK",
        ),
        "ethernet": Link(
            name="100 Gb/s Ethernet with RDMA",
            latency_seconds=9.6e-6,
            bytes_per_second=12e9,
            source="NCCL; bandwidth: src/graph/topo.h, NET_BW, and"
            f" github.com/NVIDIA/nccl-tests/issues/119; {_LATENCY}, NET",
        ),
    }
)


def choose_link(
    name: str, *, latency_seconds: float | None = None, bytes_per_second: float | None = None
) -> Link:
    """Return a preset link, optionally with a given latency or bandwidth.

    Args:
        name: `"pcie"`, `"nvlink"` or `"ethernet"`.
        latency_seconds: Replaces the preset's latency.
        bytes_per_second: Replaces the preset's bandwidth.

    Returns:
        The link; its name and source say which figures the caller stated.

    Raises:
        UserError: If there is no such preset, or a figure is out of range.

    Example:
        >>> choose_link("ethernet", bytes_per_second=3e9).name
        '100 Gb/s Ethernet with RDMA, stated bandwidth'
    """
    if name not in LINKS:
        raise UserError(
            f"link is {name!r}, but has to be one of {', '.join(LINKS)}: pass the most similar one,"
            " with the latency and bandwidth of yours"
        )
    preset = LINKS[name]
    stated = {"latency_seconds": latency_seconds, "bytes_per_second": bytes_per_second}
    given = {key: value for key, value in stated.items() if value is not None}
    if not given:
        return preset
    nouns = {"latency_seconds": "latency", "bytes_per_second": "bandwidth"}
    stated_part = f"stated {' and '.join(nouns[key] for key in given)}"
    return dataclasses.replace(
        preset,
        name=f"{preset.name}, {stated_part}",
        source=f"{stated_part}; else {preset.source}"
        if len(given) == 1
        else "stated by the caller",
        **given,
    )
