"""The machine that trains: CPU, devices, available memory, and oneDNN's kernels for the CPU."""

import contextlib
import datetime
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError

ROOT = Path("/")
CPUINFO = Path("/proc/cpuinfo")
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_ONEDNN_FLAGS = {"avx2", "fma"}
_INSTRUCTION_SETS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def machine() -> dict[str, Any]:
    """The machine as plain data; `devices` has a line for every GPU, or one for the CPU.

    A child process asks TensorFlow, so that the calling process holds no memory of a GPU. The child
    takes seconds.
    """
    from ..launch import child  # `import kdist` does not need it

    done = child.run([sys.executable, "-m", "kdist", "devices"])
    devices = [" ".join(line.split()) for line in done.output.splitlines()]
    if done.code or not devices:
        last = (done.errors.strip().splitlines() or ["it printed no error"])[-1]
        raise UserError(f"`kdist devices` fails, and so would every run: {last}")
    return {**host(), "devices": devices}


def on_cpu(about: Mapping[str, Any]) -> bool:
    """Whether all devices of `machine` are CPUs, so that replicas are parts of a CPU."""
    devices = about.get("devices")  # unknown in a damaged file
    return isinstance(devices, list) and all(str(name).startswith("CPU") for name in devices)


def host() -> dict[str, Any]:
    """Describe the machine, without its GPUs, and the date, as plain data."""
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": device_names(("CPU:0",))[0],
        "cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in _INSTRUCTION_SETS if name in cpu_flags()],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def device_names(devices: tuple[str, ...]) -> list[str]:
    """Return the product names of devices, e.g. `["NVIDIA H100 80GB HBM3", ...]`."""
    return [_name(device) for device in devices]


def _name(device: str) -> str:
    if device.startswith("CPU"):
        return _cpu_name()
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


def _cpu_name() -> str:
    return _read_field(CPUINFO, "model name") or platform.machine()


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
    util/port.cc, `IsMKLEnabled`). Without oneDNN its kernels are compiled for AVX without FMA: on
    an AVX2 machine a training step of a convolutional network then takes twice as long
    (docs/results/speed.md). GPUs are not affected.

    Set `TF_ENABLE_ONEDNN_OPTS=0` to keep TensorFlow's choice.
    """
    if (
        ONEDNN_VARIABLE not in os.environ
        and "tensorflow" not in sys.modules
        and cpu_flags(cpuinfo) >= _ONEDNN_FLAGS
    ):
        os.environ[ONEDNN_VARIABLE] = "1"


def available_memory(root: Path = ROOT) -> int | None:
    """Return the bytes that a new program can use without swapping; `None` if unknown.

    The control group's memory for inactive files counts as available: Linux frees it on demand.
    """
    kilobytes = _number_in(root / "proc/meminfo", pattern=r"^MemAvailable:\s+(\d+) kB$")
    left = [] if kilobytes is None else [kilobytes * 1024]
    for folder in _folders(root):
        # Without a limit, version 2 has a word, and version 1 a number that exceeds any memory.
        limit = _number_in(folder / "memory.max", folder / "memory.limit_in_bytes")
        used = _number_in(folder / "memory.current", folder / "memory.usage_in_bytes") or 0
        # The total of version 1 includes the groups within the group.
        inactive = (
            _number_in(folder / "memory.stat", pattern=r"^total_inactive_file (\d+)$")
            or _number_in(folder / "memory.stat", pattern=r"^inactive_file (\d+)$")
            or 0
        )
        if limit is not None:
            left.append(max(limit - max(used - inactive, 0), 0))
    return min(left, default=None)


def _folders(root: Path) -> list[Path]:
    """Return the existing folders of this process's memory control group and of its parent groups.

    Within a container, `/proc/self/cgroup` may name the path on the host: then only the topmost
    folder exists, and it belongs to the container.
    """
    base = root / "sys/fs/cgroup"
    folders: list[Path] = []
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        mounts = [base / controllers, base / "memory"] if controllers else [base]
        inner = [part for part in path.split("/") if part not in ("", "..")]
        for mount in mounts:
            folders += [mount.joinpath(*inner[:depth]) for depth in range(len(inner), -1, -1)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _number_in(*paths: Path, pattern: str = r"^(\d+)$") -> int | None:
    """Return the number that a pattern finds in the first of the files that has it."""
    for path in paths:
        with contextlib.suppress(OSError):
            found = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.M)
            if found:
                return int(found[1])
    return None
