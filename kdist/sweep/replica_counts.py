"""Numbers of replicas on a machine: which are compared, and what those on one CPU measure."""

from collections.abc import Sequence
from typing import Any

from ..analysis.groups import Row
from ..performance.hardware import on_cpu


def shared_cores_warning(about: dict[str, Any], rows: Sequence[Row]) -> str | None:
    """The warning for figures of several replicas that are parts of a CPU, else `None`.

    Args:
        about: What `kdist.performance.hardware.machine` found.
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
        about: What `kdist.performance.hardware.machine` found.
        workers: Numbers of workers.
    """
    most = max((2 if on_cpu(about) else len(about["devices"])) // max(workers), 1)
    if len(workers) > 1:
        return [most]
    return sorted({most, *(2**power for power in range(most.bit_length()) if 2**power <= most)})
