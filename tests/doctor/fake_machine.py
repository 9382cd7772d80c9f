"""Machines that are not there: their files, what their commands print, and their NVML."""

import json
import types

import pynvml
from kdist.doctor.gpus import Gpu, ask_nvml
from kdist.doctor.machine import Ended, Machine

H100 = Gpu(0, "NVIDIA H100 80GB HBM3", 81559 * 2**20, 512 * 2**20, [9, 0])


def fake_nvml(gpus=(), *, driver="550.54.15", peers=None, error=None):
    """A module such as `pynvml`.

    Args:
        gpus: A `Gpu` each; it does not tell what is `None`.
        peers: The states of pairs of GPUs that are not `NVML_P2P_STATUS_OK`.
        error: The code of the error of `nvmlInit`.
    """

    def told(value):
        if value is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def init():
        if error is not None:
            raise pynvml.NVMLError(error)

    def memory(gpu, version=None):
        if version is not None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return types.SimpleNamespace(total=told(gpu.total), used=told(gpu.used))

    nvml = types.ModuleType("pynvml")
    nvml.__dict__.update({n: v for n, v in vars(pynvml).items() if n.startswith("NVML")})
    nvml.nvmlMemory_v2 = pynvml.nvmlMemory_v2
    nvml.nvmlInit = init
    nvml.nvmlSystemGetDriverVersion = lambda: driver
    nvml.nvmlDeviceGetCount = lambda: len(gpus)
    nvml.nvmlDeviceGetHandleByIndex = lambda index: gpus[index]
    nvml.nvmlDeviceGetName = lambda gpu: gpu.name
    nvml.nvmlDeviceGetMemoryInfo = memory
    nvml.nvmlDeviceGetCudaComputeCapability = lambda gpu: told(gpu.capability)
    nvml.nvmlDeviceGetP2PStatus = lambda a, b, _: told((peers or {}).get((a.index, b.index), 0))
    return nvml


def fake_machine(root, *, files=None, commands=None, nvml=None, environment=None, cores=range(4)):
    """`commands`: exit code and text of a command that has these words; no other is installed."""
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    no_library = fake_nvml(error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    answers = {"kdist.doctor.gpus": (0, json.dumps(ask_nvml(nvml or no_library)))}
    answers |= commands or {}

    def run(arguments):
        line = " ".join(arguments)
        for words, answer in answers.items():
            if words in line:
                if isinstance(answer, Exception):
                    raise answer
                return Ended(*answer)
        return None

    return Machine(root=root, environment=environment or {}, cores=frozenset(cores), run=run)
