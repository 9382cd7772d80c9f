"""The devices and threads of a strategy, the CPU's logical devices, and the use of XLA.

A strategy's variables and collectives are in `ExactExtended` (`spmd/variables.py`).
"""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import tensorflow as tf

from ..arguments import as_integer
from ..errors import UserError, find_last_user_line
from ..processes.device_assignment import visible_gpus
from .prepare_tensorflow import DEV, quiet_stderr

# The least number of logical CPUs. The number is fixed once TensorFlow has started, and a later
# strategy in the same process may have more replicas. Idle logical CPUs cost nothing. Most machines
# have at most 8 GPUs: 8 logical CPUs suffice to try out a training.
_LOGICAL_CPUS = 8


def first_devices(replicas: int | None) -> list[str]:
    """Return the names of the first `replicas` devices; `None` means all GPUs or one CPU.

    If the user has split a GPU into logical devices, each logical device counts as a GPU.
    """
    if replicas is not None and as_integer(replicas) is None:
        raise UserError(f"replicas has to be an integer, received {replicas!r}")
    if replicas is not None and replicas < 1:
        raise UserError(f"replicas has to be at least 1, received {replicas}")
    with quiet_stderr():  # CUDA starts here
        visible = tf.config.get_visible_devices("GPU")
        gpus = sum(len(tf.config.get_logical_device_configuration(gpu) or [gpu]) for gpu in visible)
    if not gpus:
        _warn_of_unusable_gpus()
        _split_cpu(replicas)
        return [f"CPU:{index}" for index in range(replicas or 1)]
    if replicas is not None and replicas > gpus:
        raise UserError(
            f"received replicas={replicas}, but {gpus} GPU{'s are' if gpus > 1 else ' is'} visible:"
            f" pass replicas={gpus} or fewer, or hide the GPUs (CUDA_VISIBLE_DEVICES=-1) to split"
            " the CPU instead"
        )
    return [f"GPU:{index}" for index in range(replicas or gpus)]


def _warn_of_unusable_gpus() -> None:
    """Warn of GPUs that TensorFlow does not find, as TensorFlow's own warning is hidden."""
    present = len(list(DEV.glob("nvidia[0-9]*")))
    hidden = "CUDA_VISIBLE_DEVICES" in os.environ and not visible_gpus(os.environ)
    if present and not hidden and not tf.config.list_physical_devices("GPU"):
        warnings.warn(
            f"this machine has {present} NVIDIA GPU{'s' * (present > 1)}, but TensorFlow finds none"
            " and uses the CPU: pip install '.[cuda]' in a checkout of kdist, or set"
            " TF_CPP_MIN_LOG_LEVEL=0 to see what is missing",
            stacklevel=4,
        )


def _split_cpu(replicas: int | None) -> None:
    """Make at least `replicas` logical CPUs; `None` does not split the CPU."""
    cpu = tf.config.get_visible_devices("CPU")[0]
    split = tf.config.get_logical_device_configuration(cpu)
    configured = len(split) if split else 1
    if replicas is None or (split and replicas <= configured):
        return
    most = max(_LOGICAL_CPUS, len(os.sched_getaffinity(0)))
    if replicas > most:
        raise UserError(
            f"received replicas={replicas}, but no GPU is visible, and the CPU can be split into at"
            f" most {most} replicas (more would not be faster): pass replicas={most} or fewer"
        )
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * max(replicas, _LOGICAL_CPUS)
        )
    except RuntimeError as error:
        if replicas == 1:
            return
        raise UserError(
            f"received replicas={replicas}, but TensorFlow has already started with {configured}"
            f" logical CPU{'s' * (configured > 1)}, and can no longer change their number:"
            f" {_restart_hint()}"
        ) from error
    share_cores(replicas)
    reserve_thread(replicas)


def run_operations_on_one_core() -> None:
    """Run each operation on one core: the bits of some results depend on the number of cores."""
    threading = tf.config.threading
    if "TF_NUM_INTRAOP_THREADS" in os.environ or threading.get_intra_op_parallelism_threads() == 1:
        return
    try:
        threading.set_intra_op_parallelism_threads(1)
    except RuntimeError as error:
        raise UserError(
            "shards need one thread per operation, but TensorFlow has already started with more:"
            f" {_restart_hint()}"
        ) from error


def share_cores(replicas: int) -> None:
    """Run each operation on one core if every core has a replica, unless the user chose otherwise.

    The operations of all replicas share TensorFlow's threads. An operation that is divided over all
    threads waits for its parts, which are queued behind the operations of other replicas. On two
    cores the wait takes a seventh of a WideResNet's step.
    """
    no_idle_core = len(os.sched_getaffinity(0)) <= replicas
    chosen = "TF_NUM_INTRAOP_THREADS" in os.environ
    if no_idle_core and not chosen and not tf.config.threading.get_intra_op_parallelism_threads():
        tf.config.threading.set_intra_op_parallelism_threads(1)


def reserve_thread(replicas: int) -> None:
    """Give TensorFlow one thread more than there are replicas.

    With an iterator inside a `tf.function`, the batch of each replica waits in a separate thread.
    If all threads wait, no thread is left for the operations that produce the batches. Nothing
    changes if there are more cores than replicas, TensorFlow has started, or the user chose the
    number.
    """
    threading, cores = tf.config.threading, len(os.sched_getaffinity(0))
    chosen = "TF_NUM_INTEROP_THREADS" in os.environ or threading.get_inter_op_parallelism_threads()
    if replicas < cores or chosen:
        return
    with contextlib.suppress(RuntimeError):  # TensorFlow has started
        threading.set_inter_op_parallelism_threads(replicas + 1)


def _restart_hint() -> str:
    if "ipykernel" in sys.modules:
        return (
            "restart the kernel, and run this cell before all cells that create a tensor, model or"
            " dataset"
        )
    line = find_last_user_line(
        (frame.filename, frame.lineno or 0) for frame in traceback.extract_stack()
    )
    return (
        f"create the strategy{f' ({line})' * bool(line)} before the program's first tensor, model"
        " or dataset, and before imports that create tensors"
    )


def check_devices(devices: Sequence[str]) -> list[str]:
    """Check device names, and return them as a list."""
    is_list = isinstance(devices, Sequence) and not isinstance(devices, str)
    if not is_list or not all(isinstance(name, str) for name in devices):
        raise UserError(f"devices has to be a list such as ['GPU:0'], received {devices!r}")
    if not devices:
        raise UserError(
            "received an empty list of devices: name at least one device, or pass None for every"
            " GPU"
        )
    reserve_thread(len(devices))
    with quiet_stderr():
        known = [short_name(device.name) for device in tf.config.list_logical_devices()]
    known = [name for name in known if device_type(name) in ("CPU", "GPU")]
    names = [short_name(name) for name in devices]
    unknown = [name for name, short in zip(devices, names, strict=True) if short not in known]
    if unknown:
        raise UserError(
            f"unknown device {', '.join(unknown)}: available are {', '.join(known)}"
            " (replicas=N splits the CPU)"
        )
    if len(set(names)) < len(names):
        raise UserError(f"received devices={list(devices)}: name each device only once")
    return list(names)


def short_name(device: str) -> str:
    """Return `GPU:0` for `/gpu:0`, `gpu:0` or `/job:localhost/replica:0/task:0/device:GPU:0`."""
    kind, _, index = device.rpartition(":")
    return f"{kind.rpartition(':')[2].rpartition('/')[2].upper()}:{index}"


def device_type(device: str) -> str:
    """Return the type of a device, such as `GPU` for `GPU:0`."""
    return device.partition(":")[0]


class XlaForDraws(int):
    """The type of `XLA_FOR_DRAWS_ONLY`: an `int`, as Python has no subclasses of `bool`."""


XLA_FOR_DRAWS_ONLY = XlaForDraws(False)
"""A `jit_compile` that is false, except that XLA compiles random draws."""


def describe_xla(
    jit_compile: bool | XlaForDraws, wanted: bool | None, devices: Sequence[str]
) -> str:
    """Describe in one line whether the step is compiled with XLA, and why."""
    if jit_compile:
        return "XLA: on" if wanted else "XLA: on, as in Keras on one GPU; --no-xla turns it off"
    if wanted is False:
        return "XLA: off, as requested"
    if jit_compile is XLA_FOR_DRAWS_ONLY:
        return "XLA: off, as in Keras on several GPUs, except for random draws; --xla turns it on"
    if wanted or are_gpus(devices):
        return (
            "XLA: off, because a layer or TensorFlow's deterministic operations do not support it"
        )
    return "XLA: off, as TensorFlow's own kernels are faster on CPUs; --xla turns it on"


def are_gpus(devices: Sequence[str]) -> bool:
    """Whether all devices are GPUs."""
    return all("GPU" in name.upper() for name in devices)
