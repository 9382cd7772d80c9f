"""The GPUs and cores of this machine, and the `Share` of each worker."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import UserError
from . import child
from .child import VISIBLE_GPUS, Share

_MOST_SECONDS = 60.0


def divide(*, workers: int, gpus: Sequence[str], cores: Sequence[int]) -> list[Share]:
    """Divide a machine among its workers, neighbouring cores to the same one.

    Args:
        workers: How many.
        gpus: All of the machine's.
        cores: All that this process may use; where there are fewer than workers, all share them.

    Raises:
        UserError: The GPUs cannot be divided evenly.
    """
    if gpus and len(gpus) % workers:
        raise UserError(
            f"{workers} workers cannot share {len(gpus)} GPUs evenly: pass --workers"
            f" {len(gpus)}, or another divisor, or hide some with {VISIBLE_GPUS}"
        )
    each = len(gpus) // workers
    own_gpus = [tuple(gpus[worker * each : (worker + 1) * each]) for worker in range(workers)]
    own_cores = [tuple(cores)] * workers
    if len(cores) >= workers:  # neighbours share caches and memory
        ends = [len(cores) * worker // workers for worker in range(workers + 1)]
        own_cores = [tuple(cores[start:end]) for start, end in itertools.pairwise(ends)]
    return [
        Share(gpus=of_gpus if gpus else None, cores=of_cores)
        for of_gpus, of_cores in zip(own_gpus, own_cores, strict=True)
    ]


def count_workers(asked: int | None, gpus: Sequence[str]) -> int:
    """Return the number of workers: as many as asked for, or one for each GPU.

    Args:
        asked: `None` for one for each GPU, or one without GPUs.
        gpus: All of the machine's.
    """
    return (len(gpus) or 1) if asked is None else asked


def visible_gpus(environment: Mapping[str, str], *, dev: Path = Path("/dev")) -> list[str]:
    """Return the GPUs that TensorFlow would see, without importing it.

    Args:
        environment: Such as `os.environ`.
        dev: The folder of device files, which are counted where `nvidia-smi` is not installed, as
            in some containers.
    """
    if VISIBLE_GPUS in environment:
        names = [name.strip() for name in environment[VISIBLE_GPUS].split(",")]
        # As CUDA reads it: an invalid name hides itself and all after it.
        valid = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:valid]
    try:
        done = child.run(["nvidia-smi", "--list-gpus"], seconds=_MOST_SECONDS)
    except FileNotFoundError:
        count = len(list(dev.glob("nvidia[0-9]*")))
    except OSError:  # a driver that hangs
        count = 0
    else:  # none without a driver
        lines = [] if done.code else done.output.splitlines()
        count = sum(line.startswith("GPU ") for line in lines)
    return [str(index) for index in range(count)]


def visible_cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))
