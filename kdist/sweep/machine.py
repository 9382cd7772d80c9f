"""Where a sweep runs."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ..analysis.groups import Row
from ..errors import UserError
from ..performance.hardware import machine as describe


def machine(devices: Sequence[str] | None = None) -> dict[str, Any]:
    """The machine as plain data; `devices` has a line for every GPU, or one for the CPU.

    Args:
        devices: What an earlier call found; by default a process of its own asks TensorFlow, which
            takes seconds, so that this one holds no memory of a GPU.

    Raises:
        UserError: TensorFlow cannot list its devices.
    """
    return {**describe(), "devices": _listed() if devices is None else list(devices)}


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


def shared_cores_warning(about: dict[str, Any], rows: Sequence[Row]) -> str | None:
    """The warning for figures of several replicas that are parts of a CPU, else `None`.

    Args:
        about: What `machine` found.
        rows: Of the points.
    """
    most = max((row["replicas"] for row in rows), default=1)
    if most == 1 or not on_cpu(about):
        return None
    alone = all(row["replicas"] == (row["workers"] or 1) for row in rows)
    several = "Workers are processes" if alone else "Replicas are logical CPUs"
    return (
        f"{several} that share this machine's cores: these figures do not measure a speed-up, only"
        f" the overhead of a step on several {'workers' if alone else 'replicas'}."
    )


def replica_counts(about: dict[str, Any], workers: Sequence[int] = (1,)) -> list[int]:
    """Powers of two up to all GPUs, and all of them; on a CPU, one and two.

    Of several workers, each has its share of these; several numbers of workers are compared with
    as many replicas each.

    Args:
        about: What `machine` found.
        workers: Numbers of workers.
    """
    most = max((2 if on_cpu(about) else len(about["devices"])) // max(workers), 1)
    if len(workers) > 1:
        return [most]
    return sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})
