"""`slow_link`: a network of two namespaces of this machine, with a link of a given speed."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NETWORK = "10.213.7"


class Unavailable(Exception):  # noqa: N818 - not an error: the row is skipped
    """No link can be made here; the message says why."""


@dataclass(frozen=True)
class Link:
    """A link between two network namespaces.

    Attributes:
        hosts: The address of each end.
        prefixes: What runs a command at each end.
        has_delay: Whether packets are delayed, and not only slowed down.
    """

    hosts: tuple[str, str]
    prefixes: tuple[Sequence[str], Sequence[str]]
    has_delay: bool


@contextlib.contextmanager
def slow_link(*, gigabits_per_second: float, delay_ms: float) -> Iterator[Link]:
    """Make a link for the `with` block.

    Args:
        gigabits_per_second: The rate in each direction.
        delay_ms: The time of a round trip; without it, if the kernel lacks `netem`.

    Raises:
        Unavailable: Not the superuser of a Linux with namespaces and traffic control.
    """
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise Unavailable(f"there is no `{program}` (package iproute2)")
    names = [f"kdist-{os.getpid()}-{end}" for end in "ab"]
    devices = [f"kd{os.getpid()}{end}" for end in "ab"]
    rate = f"{gigabits_per_second}gbit"
    netem = ["netem", "delay", f"{1000 * delay_ms / 2:.0f}us", "rate", rate, "limit", "100000"]
    slower = ["tbf", "rate", rate, "burst", "256kb", "latency", "1s"]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        ends = ["name", devices[0], "netns", names[0]], ["name", devices[1], "netns", names[1]]
        _run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        has_delay = True
        for end, (name, device) in enumerate(zip(names, devices, strict=True), 1):
            _run("ip", "-n", name, "addr", "add", f"{_NETWORK}.{end}/24", "dev", device)
            for one in ("lo", device):
                _run("ip", "-n", name, "link", "set", one, "up")
            add = ["tc", "-n", name, "qdisc", "add", "dev", device, "root"]
            try:
                _run(*add, *netem)
            except Unavailable:
                _run(*add, *slower)
                has_delay = False
        first, second = (("ip", "netns", "exec", name) for name in names)
        yield Link((f"{_NETWORK}.1", f"{_NETWORK}.2"), (first, second), has_delay)
    finally:
        for name in names:
            with contextlib.suppress(Unavailable):
                _run("ip", "netns", "del", name)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` fails: {done.stderr.strip()}")
