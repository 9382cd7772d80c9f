"""The machine that trains: CPU, devices, and oneDNN's kernels for the CPU."""

import datetime
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError

CPUINFO = Path("/proc/cpuinfo")
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_ONEDNN_FLAGS = {"avx2", "fma"}


def describe_machine() -> dict[str, Any]:
    """Describe the machine as plain data; `devices` has a line for each GPU, or for the CPU.

    A child process asks TensorFlow, so that the calling process holds no memory of a GPU. The child
    takes seconds.
    """
    from ..processes import child  # `import kdist` does not need it

    done = child.run_child([sys.executable, "-m", "kdist", "devices"])
    devices = [" ".join(line.split()) for line in done.output.splitlines()]
    if done.exit_code or not devices:
        last = (done.errors.strip().splitlines() or ["it printed no error"])[-1]
        raise UserError(f"TensorFlow cannot start here (`kdist devices`): {last}")
    return {**describe_host(), "devices": devices}


def is_on_cpu(machine: Mapping[str, Any]) -> bool:
    """Whether all devices of `describe_machine` are CPUs, so that replicas are parts of a CPU."""
    devices = machine.get("devices")  # missing in a damaged file
    return isinstance(devices, list) and all(str(name).startswith("CPU") for name in devices)


def describe_host() -> dict[str, Any]:
    """Describe the machine, without its GPUs, and the date, as plain data."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": device_names(("CPU:0",))[0],
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def device_names(devices: tuple[str, ...]) -> list[str]:
    """Return the product names of devices, e.g. `["NVIDIA H100 80GB HBM3", ...]`."""
    return [_device_name(device) for device in devices]


def _device_name(device: str) -> str:
    if device.startswith("CPU"):
        return _read_field(CPUINFO, "model name") or platform.machine()
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    index = int(device.partition(":")[2])
    if index >= len(gpus):
        return device  # a logical part of a GPU
    details = tf.config.experimental.get_device_details(gpus[index])
    return str(details.get("device_name", device))


def cpu_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return the CPU's feature flags as Linux names them, e.g. `avx2`; empty if unknown."""
    return frozenset(_read_field(cpuinfo, "flags").split())


def _read_field(cpuinfo: Path, name: str) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(values, "")


def enable_onednn(cpuinfo: Path = CPUINFO) -> None:
    """Enable oneDNN in TensorFlow if the CPU has AVX2 and FMA and the user has not decided.

    TensorFlow enables oneDNN by itself only for newer CPUs, when it is imported (TensorFlow's
    util/port.cc, `IsMKLEnabled`). TensorFlow's other kernels are compiled for AVX without FMA: on
    an AVX2 machine a training step of a convolutional network then takes twice as long. GPUs
    are not affected.

    Set `TF_ENABLE_ONEDNN_OPTS=0` to keep TensorFlow's choice.
    """
    if (
        ONEDNN_VARIABLE not in os.environ
        and "tensorflow" not in sys.modules
        and cpu_flags(cpuinfo) >= _ONEDNN_FLAGS
    ):
        os.environ[ONEDNN_VARIABLE] = "1"
