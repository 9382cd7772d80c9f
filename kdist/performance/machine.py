"""The machine that trains, with the devices that TensorFlow finds on it."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from .hardware import host


def machine(devices: Sequence[str] | None = None) -> dict[str, Any]:
    """The machine as plain data; `devices` has a line for every GPU, or one for the CPU.

    Args:
        devices: What an earlier call found; by default a process of its own asks TensorFlow, which
            takes seconds, so that this one holds no memory of a GPU.

    Raises:
        UserError: TensorFlow cannot list its devices.
    """
    return {**host(), "devices": _listed() if devices is None else list(devices)}


def _listed() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "kdist", "devices"],
        capture_output=True,
        text=True,
    )
    devices = [" ".join(line.split()) for line in done.stdout.splitlines()]
    if done.returncode or not devices:
        last = (done.stderr.strip().splitlines() or ["it printed no error"])[-1]
        raise UserError(f"`kdist devices` fails, and so would every run: {last}")
    return devices


def on_cpu(about: dict[str, Any]) -> bool:
    """Whether replicas are parts of a CPU."""
    return all(str(device).startswith("CPU") for device in about.get("devices", ()))
