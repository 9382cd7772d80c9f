"""NVIDIA's GPUs and their driver, as `nvidia-smi` and Linux show them."""

import dataclasses
import re
from collections.abc import Sequence

from .finding import Finding
from .machine import Ended, Machine
from .memory import size

_FIELDS = "index,name,driver_version,memory.total,memory.used,compute_cap"
_QUERY = ("nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits")
_PEERS = ("nvidia-smi", "topo", "-p2p", "r")

# NVIDIA, "CUDA Toolkit Release Notes", table "CUDA Toolkit and Minimum Required Driver Version for
# CUDA Minor Version Compatibility".
_LEAST_DRIVER = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580,)}

# What `nvidia-smi` says where it fails, and how to fix it.
_REMEDIES = (
    (
        "version mismatch",
        "restart the machine: the driver was updated, and the one that runs is older",
    ),
    (
        "communicate with the NVIDIA driver",
        "load the driver with `sudo modprobe nvidia`, or install it again: a new kernel needs it"
        " anew",
    ),
    ("Unknown Error", "start the container again: it has lost its devices"),
    ("No devices were found", "see `sudo dmesg | grep -i nvrm` for the GPU's error"),
)


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU of the machine.

    Attributes:
        index: `nvidia-smi`'s number of it.
        name: The product.
        driver: The version of the driver.
        total: Bytes of its memory; `None` if unknown.
        used: Bytes that programs use now; `None` if unknown.
        capability: Its compute capability, such as `"9.0"`; empty if unknown.
    """

    index: str
    name: str
    driver: str
    total: int | None
    used: int | None
    capability: str


def parse_gpus(text: str) -> list[Gpu]:
    """Parse the answer to the query for all GPUs: a line for each."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == len(_FIELDS.split(",")) and parts[0].isdecimal():
            index, name, driver, total, used, capability = parts
            known = capability if re.fullmatch(r"\d+\.\d+", capability) else ""
            gpus.append(Gpu(index, name, driver, _mebibytes(total), _mebibytes(used), known))
    return gpus


def _mebibytes(text: str) -> int | None:
    return int(text) * 2**20 if text.isdecimal() else None


@dataclasses.dataclass(frozen=True)
class Driver:
    """The driver, and the GPUs that it shows.

    Attributes:
        finding: How the driver is.
        gpus: Those that `nvidia-smi` lists.
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
        ended = machine.run(_QUERY)
    except TimeoutError as error:
        hangs = Finding("GPU driver", "broken", str(error), "restart the machine")
        return Driver(hangs, [], present=True)
    if ended is not None and ended.code == 0 and (gpus := parse_gpus(ended.text)):
        return Driver(_judge_version(gpus[0].driver, cuda), gpus, present=True)
    if ended is not None:
        return _failed(machine, ended)
    return _without_tool(machine)


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


def _failed(machine: Machine, ended: Ended) -> Driver:
    line = next((line.strip() for line in ended.text.splitlines() if line.strip()), "no output")
    remedy = next((fix for words, fix in _REMEDIES if words in ended.text), "")
    if not remedy:
        remedy = "run nvidia-smi yourself, and see `sudo dmesg | grep -i nvrm`"
    if not (_on_the_bus(machine) or _devices(machine) or _loaded(machine)):
        text = f"nvidia-smi is installed, but finds no GPU: {line}"
        return Driver(Finding("GPU driver", "absent", text), [], present=False)
    return Driver(Finding("GPU driver", "broken", f"nvidia-smi: {line}", remedy), [], present=True)


def _without_tool(machine: Machine) -> Driver:
    devices, loaded = _devices(machine), _loaded(machine)
    if devices:
        version = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", loaded)
        text = f"{version[0] if version else 'version unknown'}; {len(devices)} GPU"
        text += "s" * (len(devices) > 1) + ", of which no more is known without nvidia-smi"
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
        gpus: Those that `nvidia-smi` lists.
        capabilities: Of TensorFlow's build, such as `["sm_60", "compute_90"]`.
    """
    return [_judge_gpu(gpu, capabilities) for gpu in gpus]


def _judge_gpu(gpu: Gpu, capabilities: Sequence[str]) -> Finding:
    name = f"GPU {gpu.index}"
    text = gpu.name
    if gpu.total is not None and gpu.used is not None:
        text += f", {size(gpu.total - gpu.used)} free of {size(gpu.total)}"
    if gpu.capability:
        text += f", compute capability {gpu.capability}"
    # Such as `sm_80`, `compute_90`, and `sm_90a`, which only works on a GPU of just that.
    built = sorted(int(n) for part in capabilities for n in re.findall(r"_(\d+)", part))
    own = int(gpu.capability.replace(".", "")) if gpu.capability else None
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


def find_peer_access(machine: Machine, gpus: Sequence[Gpu]) -> Finding:
    """Can each GPU read the memory of each other one, without the CPU's memory between?"""
    name = "peer access"
    if len(gpus) < 2:
        return Finding(name, "absent", "needs two GPUs or more")
    try:
        ended = machine.run(_PEERS)
    except TimeoutError as error:
        return Finding(name, "broken", str(error), "restart the machine")
    pairs = parse_peers(ended.text) if ended is not None and ended.code == 0 else {}
    if not pairs:
        return Finding(name, "absent", "unknown: nvidia-smi topo does not say")
    without = sorted(pair for pair, state in pairs.items() if state != "OK")
    if not without:
        return Finding(name, "good", f"between all {len(gpus)} GPUs")
    first = " and ".join(map(str, without[0]))
    why = pairs[without[0]]
    return Finding(
        name,
        "slow",
        f"{len(without)} of {len(pairs)} pairs of GPUs have none, such as {first} ({why})",
        "sums go through the CPU's memory: for CNS or TNS turn off ACS and the IOMMU in the"
        " machine's BIOS, or use GPUs of one socket; consumer GPUs (GNS, NS) cannot",
    )


def parse_peers(text: str) -> dict[tuple[int, int], str]:
    """Parse the table of `nvidia-smi topo -p2p r`: the state of each pair of GPUs."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    pairs: dict[tuple[int, int], str] = {}
    for line in plain.splitlines():
        words = line.split()
        if len(words) < 2 or not (row := re.fullmatch(r"GPU(\d+)", words[0])):
            continue
        if all(re.fullmatch(r"GPU\d+", word) for word in words):
            continue  # the head of the table
        for column, state in enumerate(words[1:]):
            if column != int(row[1]) and state != "X":
                pair = sorted((int(row[1]), column))
                pairs.setdefault((pair[0], pair[1]), state)
                if state != "OK":
                    pairs[(pair[0], pair[1])] = state
    return pairs
