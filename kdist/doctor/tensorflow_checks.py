"""Checks of TensorFlow: its import, its GPUs and libraries, and a sum over them.

They run in a process of their own, as TensorFlow may crash, hang, or not be there.
"""

import contextlib
import math
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..launch.shares import visible_gpus
from .finding import Finding
from .gpu_driver import count_gpus, is_there_a_gpu
from .machine import NOT_INSTALLED, requirements

_INSTALL = "in a checkout of kdist, pip install '.[cuda]'"
_HIDES = "CUDA_VISIBLE_DEVICES"
_ROUNDS = 7
_BYTES = 64 * 10**6
# A PCIe 3.0 x16 slot has 12 GB/s, through the CPU's memory about half; less than a quarter has
# another cause.
_SLOW_BYTES_PER_SECOND = 3e9


def check_imports() -> Finding:
    """Can TensorFlow and Keras be imported, and does Keras use TensorFlow?"""
    name = "TensorFlow"
    remedy = "pip install --force-reinstall tensorflow keras, in the environment that has kdist"
    use = "set KERAS_BACKEND=tensorflow, or change it in ~/.keras/keras.json"
    try:
        import tensorflow  # noqa: F401

        remedy = f"{use}, or pip install --force-reinstall keras"
        import keras
    except Exception as error:
        return Finding(name, "broken", f"{type(error).__name__}: {error}", remedy)
    backend = keras.backend.backend()
    if backend != "tensorflow":
        return Finding(name, "broken", f"Keras uses {backend}", use)
    return Finding(name, "good", "can be imported, and Keras uses it")


def build_info() -> Mapping[str, Any]:
    """Return facts of TensorFlow's build, such as `"cuda_version"`; none if it is not imported."""
    tf = sys.modules.get("tensorflow")
    return {} if tf is None else dict(tf.sysconfig.get_build_info())


def tensorflow_gpus() -> list[str]:
    """Return the products of the GPUs that TensorFlow finds, whose memory it does not take."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:  # other programs may use them
        tf.config.experimental.set_memory_growth(gpu, True)
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return [str(one.get("device_name", "GPU")) for one in details]


def check_tensorflow_gpus() -> list[Finding]:
    """Does TensorFlow find the machine's GPUs, and if not, why?"""
    seen = tensorflow_gpus()
    if not seen and not is_there_a_gpu():
        return []
    is_cuda_build = build_info().get("is_cuda_build") is not False
    return [judge_gpus(seen, count_gpus(), is_cuda_build=is_cuda_build, said=_said())]


def judge_gpus(seen: Sequence[str], listed: int, *, is_cuda_build: bool, said: str) -> Finding:
    """Judge which GPUs TensorFlow finds.

    Args:
        seen: Their products.
        listed: How many the driver lists; 0 if unknown.
        is_cuda_build: Whether TensorFlow was built with CUDA.
        said: Its messages.
    """
    name, count, wanted = "GPUs in TensorFlow", len(seen), listed
    if _HIDES in os.environ:
        shown = visible_gpus(os.environ)
        known = [not one.isdecimal() or int(one) < (listed or math.inf) for one in shown]
        wanted = [*known, False].index(False)  # an unknown one hides itself and all after it
        if wanted <= count < max(listed, 1):
            text = f"{count}, as {_HIDES}={os.environ[_HIDES]!r}"
            return Finding(name, "good" if count else "absent", text, f"unset {_HIDES} for all")
    if seen and count >= wanted:
        return Finding(name, "good", f"{count}: {', '.join(dict.fromkeys(seen))}")
    if not is_cuda_build:
        remedy = f"pip uninstall tensorflow tensorflow-cpu, then {_INSTALL}"
        return Finding(name, "broken", "none: this TensorFlow was built without CUDA", remedy)
    text = f"{count or 'none'}{f' of {wanted}' if wanted else ''}"
    # What TensorFlow says of CUDA, without time and place.
    lines = re.findall(r"^(?:.*?\] )?(.*(?:CUDA|cuInit|Cannot dlopen).*)$", said, re.M | re.I)
    text = ": ".join([text, *lines[-1:]])
    remedy = "see the lines of the GPU driver and the CUDA packages"
    return Finding(name, "broken", text, remedy)


def _said() -> str:
    """What this process has printed, as its errors go to a file."""
    with contextlib.suppress(OSError):
        return os.pread(2, 2**20, 0).decode(errors="replace")
    return ""


def check_cuda_packages() -> list[Finding]:
    """Are CUDA, cuDNN and NCCL there, in the versions that TensorFlow needs?"""
    cuda = build_info().get("cuda_version")
    if not cuda or not is_there_a_gpu():
        return []
    return [judge_cuda(cuda, requirements("tensorflow", "and-cuda"), bool(tensorflow_gpus()))]


def judge_cuda(cuda: str, packages: Mapping[str, str], found: bool) -> Finding:
    """Judge the packages of `tensorflow[and-cuda]`.

    Args:
        cuda: The version of CUDA that TensorFlow was built with.
        packages: What is wrong with each, as `requirements` returns it.
        found: Whether TensorFlow finds GPUs, perhaps by libraries of the system.
    """
    name = "CUDA packages"
    missing = [one for one, wrong in packages.items() if wrong.endswith(NOT_INSTALLED)]
    others = [wrong for one, wrong in packages.items() if wrong and one not in missing]
    if others or (missing and not found):
        text = "; ".join([*others, *(packages[one] for one in missing)])
        return Finding(name, "broken", f"CUDA {cuda}: {text}", _INSTALL)
    where = "the system's libraries" if missing else f"all {len(packages)} that TensorFlow needs"
    return Finding(name, "good", f"CUDA {cuda}: {where}")


def check_tf_config() -> list[Finding]:
    """Does `TF_CONFIG` name a cluster with this process in it, if it is set?

    Raises:
        UserError: It does not.
    """
    from ..distribute.cluster import check_tf_config

    if not os.environ.get("TF_CONFIG", "").strip():
        return []
    check_tf_config(os.environ["TF_CONFIG"])
    return [Finding("TF_CONFIG", "good", "set, and this process is in its cluster")]


def check_all_reduce(replicas: int | None = None) -> list[Finding]:
    """Is the sum of a buffer over all devices right, and how long does it take?

    Args:
        replicas: How many devices; by default every GPU, else two logical CPUs.

    Raises:
        UserError: There are not so many devices.
    """
    from ..distribute.devices import first_devices, stock_strategy

    count = replicas or len(tensorflow_gpus()) or 2
    if count == 1:
        return []
    devices = first_devices(count)
    # TensorFlow's own, as kdist's steps see one device, and reduce what they need by themselves.
    totals, seconds = _add_up(stock_strategy(devices))
    on_gpus = devices[0].startswith("GPU")
    return [judge_all_reduce(count, totals, seconds, on_gpus=on_gpus)]


def _add_up(strategy: Any) -> tuple[list[float], float]:
    """The least and the largest value of each device's sum, and the seconds of a step."""
    import tensorflow as tf

    # As arguments: TensorFlow would add up constants while it traces.
    buffers = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill((_BYTES // 4,), context.replica_id_in_sync_group + 1.0)
    )

    def total(buffer: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, buffer)

    def ends_of_total(buffer: Any) -> Any:
        whole = total(buffer)
        return tf.stack([whole[0], whole[-1]])  # little to copy to the host

    def step(work: Callable[[Any], Any]) -> Callable[[], list[Any]]:
        traced = tf.function(lambda values: strategy.run(work, (values,)))
        return lambda: [*strategy.experimental_local_results(traced(buffers))]

    sums = [float(end) for one in step(total)() for end in (tf.reduce_min(one), tf.reduce_max(one))]
    timed, seconds = step(ends_of_total), []
    for _ in range(_ROUNDS + 1):  # the first traces
        begin = time.perf_counter()
        for one in timed():
            one.numpy()
        seconds.append(time.perf_counter() - begin)
    return sums, statistics.median(seconds[1:])


def judge_all_reduce(
    replicas: int, totals: Iterable[float], seconds: float, *, on_gpus: bool
) -> Finding:
    """Judge the sum of the buffers of `1, 2, ...`, of 64 MB each."""
    name, expected = "all-reduce", replicas * (replicas + 1) / 2
    wrong = [total for total in totals if total != expected]
    if wrong:
        text = f"the sum is {wrong[0]:g}, expected {expected:g}"
        return Finding(name, "broken", text, "update the driver and NCCL; test the GPUs' memory")
    # Each device sends and receives this part of the buffer in a ring: NCCL's "bus bandwidth".
    rate = 2 * (replicas - 1) / replicas * _BYTES / seconds
    text = (
        f"{_BYTES / 1e6:g} MB over {replicas} {'GPUs' if on_gpus else 'logical CPUs'} in"
        f" {1000 * seconds:.1f} ms ({rate / 1e9:.1f} GB/s per device, median of {_ROUNDS})"
    )
    if on_gpus and rate < _SLOW_BYTES_PER_SECOND:
        remedy = (
            "NCCL_DEBUG=INFO says which links NCCL uses, and `nvidia-smi topo -p2p r` which pairs"
            " have no peer access: turn off ACS and the IOMMU in the machine's BIOS"
        )
        return Finding(name, "slow", text, remedy)
    return Finding(name, "good", text)
