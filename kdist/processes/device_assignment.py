"""The GPUs and cores of this machine, divided among child processes."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from . import child
from .child import VISIBLE_GPUS, Resources

NVIDIA_SMI_SECONDS = 60.0


def assign_devices(*, workers: int, gpus: Sequence[str], cores: Sequence[int]) -> list[Resources]:
    """Divide a machine among its workers, so that each worker gets neighbouring cores.

    The number of GPUs has to be a multiple of `workers`. If there are fewer cores than workers, all
    workers share all cores.
    """
    if gpus and len(gpus) % workers:
        raise UserError(
            f"{workers} workers cannot share {len(gpus)} GPUs evenly: pass --workers"
            f" {len(gpus)}, or another divisor of {len(gpus)}, or hide some GPUs with"
            f" {VISIBLE_GPUS}"
        )
    gpus_per_worker = len(gpus) // workers
    own_gpus = [
        tuple(gpus[worker * gpus_per_worker : (worker + 1) * gpus_per_worker])
        for worker in range(workers)
    ]
    own_cores = [tuple(cores)] * workers
    if len(cores) >= workers:  # neighbouring cores share caches and memory
        ends = [len(cores) * worker // workers for worker in range(workers + 1)]
        own_cores = [tuple(cores[start:end]) for start, end in itertools.pairwise(ends)]
    return [
        Resources(gpus=worker_gpus if gpus else None, cores=worker_cores)
        for worker_gpus, worker_cores in zip(own_gpus, own_cores, strict=True)
    ]


def visible_gpus(environment: Mapping[str, str], *, dev: Path = Path("/dev")) -> list[str]:
    """Return the GPUs that TensorFlow would see, without importing TensorFlow."""
    if VISIBLE_GPUS in environment:
        names = [name.strip() for name in environment[VISIBLE_GPUS].split(",")]
        # As in CUDA, an invalid name hides itself and all names after it.
        valid = next((index for index, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:valid]
    try:
        done = child.run_child(["nvidia-smi", "--list-gpus"], seconds=NVIDIA_SMI_SECONDS)
    except FileNotFoundError:
        count = len(list(dev.glob("nvidia[0-9]*")))
    except OSError:  # the driver hangs
        count = 0
    else:  # an error code means no driver, and no GPUs
        lines = [] if done.exit_code else done.output.splitlines()
        count = sum(line.startswith("GPU ") for line in lines)
    return [str(index) for index in range(count)]


def visible_cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))
