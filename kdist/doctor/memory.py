"""Memory, shared memory and disk space."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..atomic_files import check_writable_folder, missing_folders
from ..data.sources import keras_datasets
from ..errors import UserError
from ..performance.container_limits import available_memory, memory_limit, swap, total_memory
from .finding import Finding
from .machine import Machine

_GIB = 2**30
# What Python, TensorFlow and Keras take before there is a model: about 0.6 GiB.
_LITTLE_MEMORY = 2 * _GIB
_TOO_LITTLE_MEMORY = _GIB // 2
# Docker gives a container 64 MiB.
_LITTLE_SHARED_MEMORY = _GIB // 2
_SHARED = "/dev/shm"  # noqa: S108 - only examined
_LITTLE_DISK = 2 * _GIB
_TOO_LITTLE_DISK = _GIB // 10


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
