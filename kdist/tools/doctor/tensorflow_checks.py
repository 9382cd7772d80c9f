"""Checks of TensorFlow: the program `python -m kdist.tools.doctor.tensorflow_checks`.

The checks run in a separate process, as TensorFlow may crash, hang, or be missing.
"""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import UserError
from ...processes import child
from ...processes.device_assignment import visible_gpus
from ...versions import describe_untested
from .examine import Finding

_ROUNDS = 7
_BUFFER_BYTES = 64 * 10**6
# A PCIe 3.0 x16 slot transfers 12 GB/s, and about half of this through the CPU's memory. A rate
# below a quarter has a different cause.
_SLOW_BYTES_PER_SECOND = 3e9


def check_all(replicas: int | None) -> None:
    """Send each finding to the parent process as soon as it is known."""
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("TensorFlow", check_import),
        (
            "GPUs in TensorFlow",
            lambda: judge_gpus(tensorflow_gpus(), len(visible_gpus(os.environ))),
        ),
        ("all-reduce", lambda: check_all_reduce(replicas or len(tensorflow_gpus()) or 2)),
    )
    for name, check in checks:
        try:
            finding = check()
        except UserError as error:  # its message names the remedy
            finding = Finding(name, "broken", str(error))
        except Exception as error:  # TensorFlow and drivers raise exceptions of any type
            text = f"{type(error).__name__}: {error}"
            finding = Finding(name, "broken", text, "report this, with all lines of kdist doctor")
        child.send_answer(**{name: dataclasses.asdict(finding)})
        if name == "TensorFlow" and finding.state == "broken":
            return


def check_import() -> Finding:
    """Check that TensorFlow and Keras can be imported, and that Keras uses TensorFlow."""
    name = "TensorFlow"
    backend_remedy = "set KERAS_BACKEND=tensorflow, or backend in ~/.keras/keras.json"
    try:
        import keras
        import tensorflow as tf
    except Exception as error:
        remedy = f"pip install --force-reinstall tensorflow keras; or {backend_remedy}"
        return Finding(name, "broken", f"{type(error).__name__}: {error}", remedy)
    if keras.backend.backend() != "tensorflow":
        return Finding(name, "broken", f"Keras uses {keras.backend.backend()}", backend_remedy)
    versions = {"TensorFlow": tf.__version__, "Keras": keras.__version__}
    text = f"{tf.__version__}, used by Keras {keras.__version__}"
    return Finding(name, "good", "; ".join(filter(None, [text, describe_untested(versions)])))


def tensorflow_gpus() -> list[str]:
    """Return the product names of the GPUs that TensorFlow finds, and turn on memory growth."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:  # other programs may use the GPUs
        tf.config.experimental.set_memory_growth(gpu, True)
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return [str(detail.get("device_name", "GPU")) for detail in details]


def judge_gpus(found: list[str], visible: int) -> Finding:
    """Compare the GPUs that TensorFlow finds with the GPUs of the machine."""
    name = "GPUs in TensorFlow"
    if len(found) < visible:
        text = f"{len(found) or 'none'} of {visible}"
        remedy = (
            "in a checkout of kdist, pip install '.[cuda]'; to see what is missing, run"
            ' TF_CPP_MIN_LOG_LEVEL=0 python -c "import tensorflow as tf;'
            ' tf.config.list_physical_devices()"'
        )
        return Finding(name, "broken", text, remedy)
    if not found:
        return Finding(name, "absent", "none")
    return Finding(name, "good", f"{len(found)}: {', '.join(dict.fromkeys(found))}")


def check_all_reduce(replicas: int) -> Finding:
    """Check that the sum of a buffer over all devices is correct, and time it."""
    if replicas == 1:
        return Finding("all-reduce", "absent", "not measured: there is only one device")
    import tensorflow as tf

    from ...strategies.devices import first_devices

    devices = first_devices(replicas)
    on_gpus = devices[0].startswith("GPU")
    # TensorFlow's own strategy: a kdist step is traced as on one device, with nothing to reduce.
    # TensorFlow's collectives on CPUs fail in the second strategy of a process.
    reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    totals, seconds = _add_up(strategy)
    return judge_all_reduce(replicas, totals, seconds, on_gpus=on_gpus)


def _add_up(strategy: Any) -> tuple[list[float], float]:
    """Return the first and last value of each device's sum, and the median seconds of a step."""
    import tensorflow as tf

    # The buffers are arguments: TensorFlow would add up constants while it traces.
    buffers = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill((_BUFFER_BYTES // 4,), context.replica_id_in_sync_group + 1.0)
    )

    def ends_of_total(buffer: Any) -> Any:
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, buffer)
        return tf.stack([total[0], total[-1]])  # little to copy to the host

    step = tf.function(lambda: strategy.run(ends_of_total, (buffers,)))
    seconds = []
    for _ in range(_ROUNDS + 1):  # the first round traces
        begin = time.perf_counter()
        ends = [value.numpy() for value in strategy.experimental_local_results(step())]
        seconds.append(time.perf_counter() - begin)
    return [float(value) for pair in ends for value in pair], statistics.median(seconds[1:])


def judge_all_reduce(
    replicas: int, totals: Iterable[float], seconds: float, *, on_gpus: bool
) -> Finding:
    """Judge the sum of 64 MB buffers that are filled with 1, 2, …, a number per device."""
    name, expected = "all-reduce", replicas * (replicas + 1) / 2
    wrong = [total for total in totals if total != expected]
    if wrong:
        text = f"the sum is {wrong[0]:g}, expected {expected:g}"
        remedy = (
            "update the driver and NCCL; test the GPUs' memory"
            if on_gpus
            else "install TensorFlow again; test the machine's memory"
        )
        return Finding(name, "broken", text, remedy)
    # In a ring, each device sends and receives this share of the buffer: NCCL's "bus bandwidth".
    rate = 2 * (replicas - 1) / replicas * _BUFFER_BYTES / seconds
    text = (
        f"{_BUFFER_BYTES / 1e6:g} MB over {replicas} {'GPUs' if on_gpus else 'logical CPUs'} in"
        f" {1000 * seconds:.1f} ms ({rate / 1e9:.1f} GB/s per device, median of {_ROUNDS})"
    )
    if on_gpus and rate < _SLOW_BYTES_PER_SECOND:
        remedy = (
            "if `nvidia-smi topo -p2p r` shows pairs of GPUs without peer access, turn off ACS and"
            " the IOMMU in the machine's BIOS; NCCL_DEBUG=INFO shows the links that NCCL uses"
        )
        return Finding(name, "slow", text, remedy)
    return Finding(name, "good", text)


if __name__ == "__main__":
    check_all(**child.read_arguments())
