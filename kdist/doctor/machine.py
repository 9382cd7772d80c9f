"""The machine as probes read it: its CPU, memory and disks."""

import dataclasses
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..data.sources import keras_datasets
from ..errors import UserError
from ..files import check_writable_folder, missing_folders
from ..launch import child
from ..performance.hardware import ONEDNN_VARIABLE, cpu_flags
from ..performance.resources import (
    available_memory,
    cpu_quota,
    memory_limit,
    swap,
    total_memory,
)
from .finding import Finding

_MOST_SECONDS = 20.0
_OFF = ("0", "false")  # as TensorFlow reads a switch, in any case
_GIB = 2**30
# What Python, TensorFlow and Keras take before there is a model: about 0.6 GiB.
_LITTLE_MEMORY = 2 * _GIB
_TOO_LITTLE_MEMORY = _GIB // 2
# Docker gives a container 64 MiB.
_LITTLE_SHARED_MEMORY = _GIB // 2
_SHARED = "/dev/shm"  # noqa: S108 - only examined
_LITTLE_DISK = 2 * _GIB
_TOO_LITTLE_DISK = _GIB // 10


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        code: Its exit code.
        text: What it printed, errors too.
    """

    code: int
    text: str

    @property
    def answer(self) -> str:
        """The last line that is a JSON object; empty if there is none."""
        # Libraries may print before it and as they end.
        return next((line for line in self.text.splitlines()[::-1] if line.startswith("{")), "")


def run_command(arguments: Sequence[str], *, seconds: float = _MOST_SECONDS) -> Ended | None:
    """Run a command; `None` if it is not installed.

    Raises:
        TimeoutError: It has not ended in time, and is killed.
    """
    try:
        ended = child.run(arguments, seconds=seconds)
    except FileNotFoundError:
        return None
    except TimeoutError:
        raise TimeoutError(f"{arguments[0]} has not answered in {seconds:g} seconds") from None
    return Ended(ended.code, ended.output + ended.errors)


def _cores() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as this process sees it.

    Attributes:
        root: The folder with `dev`, `proc` and `sys`.
        environment: The variables of the environment.
        cores: Those that this process may use.
        run: Runs a command, as `run_command` does.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
    cores: frozenset[int] = dataclasses.field(default_factory=_cores)
    run: Callable[[Sequence[str]], Ended | None] = run_command

    def read(self, path: str) -> str:
        """Return the text of a file below `root`; empty if it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def find_onednn(machine: Machine) -> Finding:
    """Has the CPU the instructions that TensorFlow needs, and are oneDNN's kernels on?"""
    flags = cpu_flags(machine.root / "proc/cpuinfo")
    if not flags & {"sse4_2", "avx"}:
        return Finding("oneDNN", "absent", "no x86 processor: TensorFlow chooses its kernels")
    if "avx" not in flags:
        return Finding(
            "oneDNN",
            "broken",
            "the CPU has no AVX, which TensorFlow's packages need",
            "use another machine, or build TensorFlow for this one; in a virtual machine, let it"
            " have the host's CPU model",
        )
    if not flags >= {"avx2", "fma"}:
        return Finding(
            "oneDNN", "slow", "the CPU has no AVX2 or no FMA", "use a newer machine for CPU work"
        )
    best = next((n for n in ("amx_bf16", "avx512_bf16", "avx512f") if n in flags), "avx2")
    chosen = machine.environment.get(ONEDNN_VARIABLE, "")
    if chosen.lower() in _OFF:
        text = f"turned off by {ONEDNN_VARIABLE}={chosen}"
        return Finding("oneDNN", "slow", text, f"unset {ONEDNN_VARIABLE}: kdist turns it on")
    return Finding("oneDNN", "good", f"on, with instructions up to {best}")


def find_cores(machine: Machine) -> Finding:
    """How many cores may this process use, and does TensorFlow start as many threads?"""
    cores = len(machine.cores)
    quota = cpu_quota(machine.root)
    present = os.cpu_count() if machine.root == type(machine.root)("/") else None
    text = f"{cores}"
    if present is not None and present > cores:
        text += f" of {present}, by this process's affinity"
    threads = machine.environment.get("TF_NUM_INTRAOP_THREADS", "")
    started = int(threads) if threads.isdecimal() and int(threads) else cores
    if quota is None or started <= math.ceil(quota):
        if quota is not None:
            text += f", of which the container may use {quota:g} at a time"
        return Finding("cores", "good", f"{text}; {started} threads per operation")
    enough = sorted(machine.cores)[: math.ceil(quota)]
    listed = ",".join(map(str, enough))
    return Finding(
        "cores",
        "slow",
        f"{text}, but the container may use {quota:g}: TensorFlow starts {started} threads, which"
        " are all stopped whenever they have used it up",
        f"start programs with `taskset --cpu-list {listed}`, or give the container more CPU",
    )


def size(count: float) -> str:
    """Write bytes with their unit: `23.5 GiB`, `512 MiB`."""
    if count >= _GIB:
        return f"{count / _GIB:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"


def find_memory(machine: Machine) -> Finding:
    """Is there memory left, and does the container limit it?"""
    total, free = total_memory(machine.root), available_memory(machine.root)
    if total is None or free is None:
        return Finding("memory", "absent", "unknown: /proc/meminfo cannot be read")
    limit, space = memory_limit(machine.root), swap(machine.root)
    of = "the container's limit" if limit is not None and limit <= total else "the machine's"
    text = f"{size(free)} free of {size(total)} ({of}), "
    text += f"{size(space)} of swap" if space else "no swap: a program that needs more is killed"
    if free >= _LITTLE_MEMORY:
        return Finding("memory", "good", text)
    remedy = "end other programs"
    if limit is not None:
        remedy += ", or give the container more memory (docker run --memory)"
    return Finding("memory", "broken" if free < _TOO_LITTLE_MEMORY else "slow", text, remedy)


def find_shared_memory(machine: Machine) -> Finding:
    """Is `/dev/shm` large enough for processes that share their data, such as NCCL's?"""
    folder = machine.root / "dev/shm"
    if not folder.is_dir():
        return Finding(_SHARED, "absent", "there is none")
    free = os.statvfs(folder)
    return judge_shared_memory(free.f_bavail * free.f_frsize)


def judge_shared_memory(free: int) -> Finding:
    """Judge the free bytes of `/dev/shm`."""
    if free >= _LITTLE_SHARED_MEMORY:
        return Finding(_SHARED, "good", f"{size(free)} free")
    return Finding(
        _SHARED,
        "slow",
        f"{size(free)} free: too little for NCCL between several processes, and for loaders with"
        " processes of their own",
        "docker run --shm-size=1g, or a memory-backed volume at /dev/shm in Kubernetes",
    )


def find_disk(
    name: str, folder: str | os.PathLike[str], *, option: str = "", variable: str = "TMPDIR"
) -> Finding:
    """Can a folder be written, and has its disk space left?

    Args:
        name: What the folder is for.
        folder: It; it may not exist yet.
        option: The option that names it.
        variable: The variable that names it, without an option.
    """
    path = Path(folder)
    another = f"pass another {option}" if option else f"set {variable} to a folder on another disk"
    try:
        check_writable_folder(path, option=option or variable)
    except UserError as error:
        return Finding(name, "broken", str(error).partition(";")[0], another)
    made = missing_folders(path)
    disk = os.statvfs(made[-1].parent if made else path)
    return judge_disk(
        name,
        path,
        free=disk.f_bavail * disk.f_frsize,
        files=disk.f_favail if disk.f_files else None,
        remedy=f"remove files, or {another}",
    )


def judge_disk(name: str, path: Path, *, free: int, files: int | None, remedy: str) -> Finding:
    """Judge the free bytes and the free entries of a folder's disk."""
    text = f"{size(free)} free in {path}"
    if files is not None and files < 1000:
        return Finding(name, "broken", f"{text}, but room for only {files} more files", remedy)
    if free < _TOO_LITTLE_DISK:
        return Finding(name, "broken", text, remedy)
    if free < _LITTLE_DISK:
        return Finding(name, "slow", f"{text}: a few checkpoints fill it", remedy)
    return Finding(name, "good", text)


def find_temporary_folder(environment: Mapping[str, str]) -> Finding:
    """Can temporary files be written, and in the folder that `TMPDIR` names?"""
    name, asked = "temp folder", environment.get("TMPDIR", "")
    try:
        used = tempfile.gettempdir()
    except FileNotFoundError:  # none of those that Python tries
        return find_disk(name, asked or "/tmp")  # noqa: S108 - only to be named
    if asked and os.path.abspath(asked) != used:
        text = f"TMPDIR={asked} cannot be written: Python takes {used} instead"
        return Finding(name, "broken", text, "make that folder, or set TMPDIR to another")
    return find_disk(name, used)


def find_keras_folder(environment: Mapping[str, str]) -> Finding:
    """Can Keras's folder be written, in which data sets are downloaded?"""
    folder = keras_datasets().parent
    found = find_disk("Keras's cache", folder, variable="KERAS_HOME")
    home = os.path.expanduser("~")
    if found.state != "good" or environment.get("KERAS_HOME") or os.access(home, os.W_OK):
        return found
    return Finding(
        found.name,
        "slow",
        f"{folder}, as {home} cannot be written: data sets are downloaded again when it is emptied",
        "set KERAS_HOME to a folder that can be written and stays",
    )
