"""Checks of NVIDIA's GPUs and their driver, by NVML; of TensorFlow's, in `tensorflow_checks.py`."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

from .finding import Finding
from .machine import ROOT, size

# NVIDIA, "CUDA Toolkit Release Notes", table "CUDA Toolkit and Minimum Required Driver Version for
# CUDA Minor Version Compatibility".
_LEAST_DRIVER = {"11": (450, 80, 2), "12": (525, 60, 13), "13": (580,)}
_REMEDIES = {
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "restart the machine: the driver was updated, and"
    " the one that runs is older",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the driver with `sudo modprobe nvidia`, or install"
    " it again: a new kernel needs it anew",
    pynvml.NVML_ERROR_UNKNOWN: "start the container again: it has lost its devices",
}
_MUCH_USED = 0.1  # of its memory
_NAME = "GPU driver"


def is_there_a_gpu(root: Path = ROOT) -> bool:
    """Whether the machine has an NVIDIA GPU, with a driver or without."""
    return bool(_devices(root)) or _loaded(root).exists() or _on_the_bus(root)


def _devices(root: Path) -> list[Path]:
    # WSL 2 shows one device for all GPUs.
    return [*root.glob("dev/nvidia[0-9]*"), *root.glob("dev/dxg")]


def _loaded(root: Path) -> Path:
    return root / "proc/driver/nvidia/version"


def _on_the_bus(root: Path) -> bool:
    for device in root.glob("sys/bus/pci/devices/*"):
        with contextlib.suppress(OSError):
            is_nvidia = (device / "vendor").read_text().strip() == "0x10de"
            if is_nvidia and (device / "class").read_text().startswith("0x03"):  # no network card
                return True
    return False


def check_driver(cuda: str = "", root: Path = ROOT) -> Finding:
    """Is there an NVIDIA GPU, and a driver that works with TensorFlow's CUDA?

    Args:
        cuda: The version of CUDA that TensorFlow was built with; empty if unknown.
        root: The folder with `dev`, `proc` and `sys`.
    """
    try:
        pynvml.nvmlInit()
        version, count = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return _judge_error(error, root)
    if not count:
        return _judge_error(None, root)
    least = _LEAST_DRIVER.get(cuda.partition(".")[0], ())
    if tuple(map(int, re.findall(r"\d+", version))) >= least:
        return Finding(_NAME, "good", version)
    needed = ".".join(map(str, least))
    text = f"{version}, but TensorFlow's CUDA {cuda} needs {needed} or newer"
    remedy = "update NVIDIA's driver, on the host if this is a container"
    return Finding(_NAME, "broken", text, remedy)


def _judge_error(error: Any, root: Path) -> Finding:
    if not is_there_a_gpu(root):
        return Finding(_NAME, "absent", "no NVIDIA GPU: the CPU is used")
    devices, loaded = _devices(root), _loaded(root).exists()
    text = f"NVML: {error or 'no GPU is listed'}"
    remedy = "run nvidia-smi yourself, and see `sudo dmesg | grep -i nvrm`"
    if error is not None and error.value in _REMEDIES:
        remedy = _REMEDIES[error.value]
    elif error is not None and error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        if devices:
            text = f"{len(devices)} found, and no more is known without libnvidia-ml.so.1"
            return Finding(_NAME, "good", text)
        if loaded:
            text = "the host has a driver, but this container has no GPU"
            remedy = (
                "docker run --gpus all (needs the NVIDIA Container Toolkit), or nvidia.com/gpu"
                " among the limits in Kubernetes"
            )
        else:
            text = "this machine has an NVIDIA GPU, but no driver is loaded"
            remedy = "install NVIDIA's driver, on the host if this is a container"
    return Finding(_NAME, "broken", text, remedy)


def count_gpus() -> int:
    """Return how many GPUs the driver lists; 0 if it does not work."""
    with contextlib.suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    return 0


def check_gpus(capabilities: Sequence[str] = ()) -> list[Finding]:
    """How much memory has each GPU, is it in use, and is TensorFlow compiled for it?

    Args:
        capabilities: Of TensorFlow's build, such as `["sm_60", "compute_90"]`.
    """
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count_gpus())]
    return [_judge_gpu(f"GPU {index}", gpu, capabilities) for index, gpu in enumerate(handles)]


def _judge_gpu(name: str, gpu: Any, capabilities: Sequence[str]) -> Finding:
    text, used = pynvml.nvmlDeviceGetName(gpu), 0.0
    with contextlib.suppress(pynvml.NVMLError):  # some do not tell
        try:  # this version does not count what the driver reserves as used; old drivers lack it
            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)
        except pynvml.NVMLError:
            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu)
        text += f", {size(memory.total - memory.used)} free of {size(memory.total)}"
        used = memory.used / memory.total
    with contextlib.suppress(pynvml.NVMLError):
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
        text += f", compute capability {major}.{minor}"
        own = 10 * major + minor
        # Such as `sm_80`, `compute_90`, and `sm_90a`, which only works on a GPU of just that.
        built = [int(n) for part in capabilities for n in re.findall(r"_(\d+)", part)] or [own]
        if own < min(built):
            text += f": TensorFlow needs {min(built) // 10}.{min(built) % 10} or newer"
            return Finding(name, "broken", text, "hide it with CUDA_VISIBLE_DEVICES, or replace it")
        if own // 10 > max(built) // 10:
            text += ": newer than TensorFlow's kernels, which are compiled when they are first used"
            remedy = "expect minutes at the first start; CUDA_CACHE_MAXSIZE=4294967296 keeps them"
            return Finding(name, "slow", text, remedy)
    if used > _MUCH_USED:
        remedy = "end them (nvidia-smi lists them), or choose others with CUDA_VISIBLE_DEVICES"
        return Finding(name, "slow", f"{text}: other programs use it", remedy)
    return Finding(name, "good", text)
