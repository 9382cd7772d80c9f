"""Assign devices and cores to the workers of a search."""

from collections.abc import Sequence

from ..errors import UserError
from ..launch.child import Share
from ..launch.shares import divide, divide_cores


def pin_workers(
    *,
    per_trial: int,
    devices: int | None,
    gpus: Sequence[str],
    cores: Sequence[int],
) -> list[Share]:
    """Divide the devices among as many workers as possible.

    Args:
        per_trial: Devices per worker.
        devices: Total number of devices; `None` uses every GPU. Without GPUs these are logical
            CPUs, which share the machine's cores.
        gpus: The GPUs' names, as in `CUDA_VISIBLE_DEVICES`.
        cores: The cores that this process may run on. Each worker gets its own cores, unless there
            are fewer cores than workers.

    Raises:
        UserError: There are fewer devices than requested, or too few for one worker.

    Example:
        >>> pin_workers(per_trial=1, devices=2, gpus=[], cores=[0, 1])
        [Share(gpus=('-1',), cores=(0,)), Share(gpus=('-1',), cores=(1,))]
    """
    if devices is None and not gpus:
        raise UserError(
            f"received per_trial={per_trial} without a GPU: pass --devices N to split the CPU into"
            " N devices"
        )
    count = len(gpus) if devices is None else devices
    if gpus and count > len(gpus):
        raise UserError(
            f"received devices={count}, but {len(gpus)} GPUs are visible: pass --devices"
            f" {len(gpus)} or fewer, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1) to split the CPU"
            " instead"
        )
    workers = count // per_trial
    if not workers:
        raise UserError(
            f"per_trial={per_trial} is more than the {count} available devices: lower --per-trial"
        )
    return [
        Share(
            gpus=tuple(gpus[index * per_trial : (index + 1) * per_trial]) if gpus else ("-1",),
            cores=own_cores,
        )
        for index, own_cores in enumerate(divide_cores(workers, cores))
    ]


def trials_at_once(workers: int, *, replicas: int | None, gpus: Sequence[str]) -> dict[str, int]:
    """Return the settings of a search that trains so many trials at once.

    Args:
        workers: How many.
        replicas: Of each trial; `None` for its share of the GPUs, without GPUs one.
        gpus: All of the machine's.

    Returns:
        The fields `per_trial` and `devices` of `Search`.

    Raises:
        UserError: The GPUs cannot be divided evenly, or are too few.

    Example:
        >>> trials_at_once(2, replicas=None, gpus=["0", "1", "2", "3"])
        {'per_trial': 2, 'devices': 4}
    """
    each = replicas or 1
    if replicas is None and gpus:
        (share, *_) = divide(workers=workers, gpus=gpus, cores=())
        each = len(share.gpus or ())
    if gpus and each * workers > len(gpus):
        raise UserError(
            f"received {workers} workers with {each} replicas each, but {len(gpus)} GPUs are"
            " visible: lower --workers or --replicas"
        )
    return {"per_trial": each, "devices": each * workers}
