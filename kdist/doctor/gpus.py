"""NVIDIA's GPUs and their driver, by NVML: also the program `python -m kdist.doctor.gpus`.

NVML is asked in a process of its own, as a call into a driver that hangs cannot be interrupted.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .finding import Finding
from .machine import Machine, size

_COMMAND = (sys.executable, "-m", "kdist.doctor.gpus")
_LIBRARY = "libnvidia-ml.so.1"

# NVIDIA, "CUDA Toolkit Release Notes", table "CUDA Toolkit and Minimum Required Driver Version for
# CUDA Minor Version Compatibility".
_LEAST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}

# By the name of NVML's error: how to fix it.
_REMEDIES = {
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "restart the machine: the driver was updated, and the one"
    " that runs is older",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the driver with `sudo modprobe nvidia`, or install it"
    " again: a new kernel needs it anew",
    "NVML_ERROR_UNKNOWN": "start the container again: it has lost its devices",
}
_NO_LIBRARY = "NVML_ERROR_LIBRARY_NOT_FOUND"
# How `nvidia-smi topo` writes the states of `nvmlDeviceGetP2PStatus`.
_PEER_STATES = ("OK", "CNS", "GNS", "TNS", "DR", "NS")
_READ = 0  # pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU of the machine.

    Attributes:
        index: The driver's number of it.
        name: The product.
        total: Bytes of its memory; `None` if unknown.
        used: Bytes that programs use now; `None` if unknown.
        capability: Its compute capability, such as `[9, 0]`; `None` if unknown.
        peers: Whether it can read the memory of each GPU before it: `"OK"`, or why not.
    """

    index: int
    name: str
    total: int | None = None
    used: int | None = None
    capability: Sequence[int] | None = None
    peers: Sequence[str] = ()


def main() -> None:
    """Print what NVML says, as JSON."""
    import pynvml

    print(json.dumps(ask_nvml(pynvml)), flush=True)


def ask_nvml(nvml: Any) -> dict[str, Any]:
    """Return the version of the driver and its GPUs.

    Args:
        nvml: The module `pynvml`.

    Returns:
        `driver` and `gpus`, the fields of a `Gpu` each; or the `error` that says why not, with its
        `name`.
    """
    try:
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        return {
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "gpus": [_ask_gpu(nvml, index, gpus) for index in range(len(gpus))],
        }
    except nvml.NVMLError as error:
        known = (name for name in (*_REMEDIES, _NO_LIBRARY) if getattr(nvml, name) == error.value)
        return {"error": str(error), "name": next(known, "")}


def _ask_gpu(nvml: Any, index: int, gpus: Sequence[Any]) -> dict[str, Any]:
    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(nvml, name)(*arguments)
        except nvml.NVMLError:  # this GPU does not tell
            return None

    gpu = gpus[index]
    # The second version does not count what the driver reserves as used; old drivers lack it.
    memory = ask("nvmlDeviceGetMemoryInfo", gpu, nvml.nvmlMemory_v2)
    memory = memory or ask("nvmlDeviceGetMemoryInfo", gpu)
    peers = [ask("nvmlDeviceGetP2PStatus", other, gpu, _READ) for other in gpus[:index]]
    return {
        "index": index,
        "name": nvml.nvmlDeviceGetName(gpu),
        "total": memory and memory.total,
        "used": memory and memory.used,
        "capability": ask("nvmlDeviceGetCudaComputeCapability", gpu),
        "peers": ["U" if one not in range(6) else _PEER_STATES[one] for one in peers],
    }


@dataclasses.dataclass(frozen=True)
class Driver:
    """The driver, and the GPUs that it shows.

    Attributes:
        finding: How the driver is.
        gpus: Those that NVML lists.
        present: Whether the machine has an NVIDIA GPU.
    """

    finding: Finding
    gpus: Sequence[Gpu]
    present: bool


def find_driver(machine: Machine, *, cuda: str = "") -> Driver:
    """Is there an NVIDIA GPU, and a driver that works with TensorFlow's CUDA?

    Args:
        machine: The machine.
        cuda: The version of CUDA that TensorFlow was built with; empty if unknown.
    """
    try:
        ended = machine.run(_COMMAND)
    except TimeoutError:
        text = "NVML, the driver's library, has not answered in time"
        hangs = Finding("GPU driver", "broken", text, "restart the machine")
        return Driver(hangs, [], present=True)
    if ended is None or ended.code != 0 or not ended.answer:
        lines = ended.text.splitlines() if ended is not None else []
        return _failed(machine, {"error": lines[-1] if lines else "no answer", "name": ""})
    facts = json.loads(ended.answer)
    if facts.get("name") == _NO_LIBRARY:
        return _without_library(machine)
    if "error" in facts or not facts["gpus"]:
        return _failed(machine, {"error": "no GPU is listed", "name": ""} | facts)
    gpus = [Gpu(**one) for one in facts["gpus"]]
    return Driver(_judge_version(facts["driver"], cuda), gpus, present=True)


def _judge_version(version: str, cuda: str) -> Finding:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    major = cuda.partition(".")[0]
    least = _LEAST_DRIVER.get(int(major)) if major.isdecimal() else None
    if least is None or numbers >= least:
        return Finding("GPU driver", "good", version)
    needed = ".".join(map(str, least))
    return Finding(
        "GPU driver",
        "broken",
        f"{version}, but TensorFlow's CUDA {cuda} needs {needed} or newer",
        "update NVIDIA's driver, on the host if this is a container",
    )


def _failed(machine: Machine, facts: Mapping[str, str]) -> Driver:
    why = facts["error"]
    if not (_on_the_bus(machine) or _devices(machine) or _loaded(machine)):
        text = f"NVIDIA's library is installed, but finds no GPU: {why}"
        return Driver(Finding("GPU driver", "absent", text), [], present=False)
    remedy = _REMEDIES.get(
        facts["name"], "run nvidia-smi yourself, and see `sudo dmesg | grep -i nvrm`"
    )
    return Driver(Finding("GPU driver", "broken", f"NVML: {why}", remedy), [], present=True)


def _without_library(machine: Machine) -> Driver:
    devices, loaded = _devices(machine), _loaded(machine)
    if devices:
        version = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", loaded)
        text = f"{version[0] if version else 'version unknown'}; {len(devices)} GPU"
        text += "s" * (len(devices) > 1) + f", of which no more is known without {_LIBRARY}"
        return Driver(Finding("GPU driver", "good", text), [], present=True)
    if loaded:
        return Driver(
            Finding(
                "GPU driver",
                "broken",
                "the host has a driver, but this container has no GPU",
                "docker run --gpus all (needs the NVIDIA Container Toolkit), or nvidia.com/gpu"
                " among the limits in Kubernetes",
            ),
            [],
            present=True,
        )
    if _on_the_bus(machine):
        return Driver(
            Finding(
                "GPU driver",
                "broken",
                "this machine has an NVIDIA GPU, but no driver is loaded",
                "install NVIDIA's driver, on the host if this is a container",
            ),
            [],
            present=True,
        )
    return Driver(Finding("GPU driver", "absent", "no NVIDIA GPU: the CPU is used"), [], False)


def _devices(machine: Machine) -> list[str]:
    folder = machine.root / "dev"
    # WSL 2 shows one device for all GPUs.
    return [path.name for pattern in ("nvidia[0-9]*", "dxg") for path in folder.glob(pattern)]


def _loaded(machine: Machine) -> str:
    return machine.read("proc/driver/nvidia/version")


def _on_the_bus(machine: Machine) -> bool:
    """Whether a display or compute device of NVIDIA's is among those of the PCI bus."""
    return any(
        machine.read(f"sys/bus/pci/devices/{path.name}/vendor").strip() == "0x10de"
        and machine.read(f"sys/bus/pci/devices/{path.name}/class").startswith("0x03")
        for path in (machine.root / "sys/bus/pci/devices").glob("*")
    )


def find_gpus(gpus: Sequence[Gpu], *, capabilities: Sequence[str] = ()) -> list[Finding]:
    """How much memory has each GPU, is it in use, and is TensorFlow compiled for it?

    Args:
        gpus: Those that NVML lists.
        capabilities: Of TensorFlow's build, such as `["sm_60", "compute_90"]`.
    """
    return [_judge_gpu(gpu, capabilities) for gpu in gpus]


def _judge_gpu(gpu: Gpu, capabilities: Sequence[str]) -> Finding:
    name = f"GPU {gpu.index}"
    text = gpu.name
    if gpu.total is not None and gpu.used is not None:
        text += f", {size(gpu.total - gpu.used)} free of {size(gpu.total)}"
    if gpu.capability:
        text += f", compute capability {gpu.capability[0]}.{gpu.capability[1]}"
    # Such as `sm_80`, `compute_90`, and `sm_90a`, which only works on a GPU of just that.
    built = sorted(int(n) for part in capabilities for n in re.findall(r"_(\d+)", part))
    own = 10 * gpu.capability[0] + gpu.capability[1] if gpu.capability else None
    if built and own is not None and own < built[0]:
        least = f"{built[0] // 10}.{built[0] % 10}"
        text += f": TensorFlow needs {least} or newer"
        return Finding(name, "broken", text, "hide it with CUDA_VISIBLE_DEVICES, or replace it")
    if built and own is not None and own // 10 > built[-1] // 10:
        text += ": newer than TensorFlow's kernels, which are compiled when they are first used"
        remedy = "expect minutes at the first start; CUDA_CACHE_MAXSIZE=4294967296 keeps them"
        return Finding(name, "slow", text, remedy)
    if gpu.total and gpu.used is not None and gpu.used > gpu.total / 10:
        return Finding(
            name,
            "slow",
            f"{text}: other programs use it",
            "end them (nvidia-smi lists them), or choose other GPUs with CUDA_VISIBLE_DEVICES",
        )
    return Finding(name, "good", text)


def find_peer_access(gpus: Sequence[Gpu]) -> Finding:
    """Can each GPU read the memory of each other one, without the CPU's memory between?"""
    name = "peer access"
    if len(gpus) < 2:
        return Finding(name, "absent", "needs two GPUs or more")
    pairs = {(i, gpu.index): state for gpu in gpus for i, state in enumerate(gpu.peers)}
    if set(pairs.values()) == {"U"}:
        return Finding(name, "absent", "unknown: the driver does not say")
    without = sorted(pair for pair, state in pairs.items() if state != "OK")
    if not without:
        return Finding(name, "good", f"between all {len(gpus)} GPUs")
    first = " and ".join(map(str, without[0]))
    return Finding(
        name,
        "slow",
        f"{len(without)} of {len(pairs)} pairs of GPUs have none, such as {first}"
        f" ({pairs[without[0]]})",
        "sums go through the CPU's memory: for CNS or TNS turn off ACS and the IOMMU in the"
        " machine's BIOS, or use GPUs of one socket; consumer GPUs (GNS, NS) cannot",
    )


if __name__ == "__main__":
    main()
