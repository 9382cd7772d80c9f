"""Checks of all but the GPUs: versions, cores, memory, disks, W&B."""

import importlib.metadata
import math
import os
import platform
import socket
import urllib.parse
from pathlib import Path

from ..errors import UserError
from ..files import check_writable_folder, missing_folders
from ..performance.resources import available_memory, cpu_quota, memory_limit, total_memory
from ..versions import untested
from .finding import Finding

ROOT = Path("/")
NOT_INSTALLED = "is not installed"
_GIB = 2**30
# What Python, TensorFlow and Keras take before there is a model: about 0.6 GiB.
_LITTLE_MEMORY = 2 * _GIB
_TOO_LITTLE_MEMORY = _GIB // 2
# Docker gives a container 64 MiB.
_LITTLE_SHARED_MEMORY = _GIB // 2
_LITTLE_DISK = 2 * _GIB
_TOO_LITTLE_DISK = _GIB // 10
_CONNECT_SECONDS = 3


def requirements(package: str, extra: str = "") -> dict[str, str]:
    """Return what is wrong with each package that one needs: its version, or that it is missing.

    Args:
        package: An installed package.
        extra: Without what the package needs without it; by default what it always needs.

    Returns:
        By name what is wrong, empty if nothing is.
    """
    from packaging.requirements import Requirement

    found = {}
    for one in map(Requirement, importlib.metadata.requires(package) or ()):
        wanted = one.marker is None or one.marker.evaluate({"extra": ""})
        if extra:
            wanted = not wanted and one.marker is not None and one.marker.evaluate({"extra": extra})
        if not wanted:
            continue
        found[one.name] = ""
        try:
            version = importlib.metadata.version(one.name)
        except importlib.metadata.PackageNotFoundError:
            found[one.name] = f"{one.name} {NOT_INSTALLED}"
            continue
        if not one.specifier.contains(version, prereleases=True):
            found[one.name] = f"{one.name} {version}, but {package} needs {one.specifier}"
    return found


def check_versions() -> list[Finding]:
    """Are Python and the packages that kdist needs there, in versions that it takes?"""
    from packaging.specifiers import SpecifierSet

    python = platform.python_version()
    allowed = importlib.metadata.metadata("kdist")["Requires-Python"]
    if not SpecifierSet(allowed).contains(python, prereleases=True):
        remedy = "make an environment with that Python"
        return [Finding("Python", "broken", f"{python}, but kdist needs {allowed}", remedy)]
    good = Finding("Python", "good", python)
    if wrong := "; ".join(filter(None, requirements("kdist").values())):
        return [good, Finding("packages", "broken", wrong, "pip install --upgrade kdist")]
    titles = {"kdist": "kdist", "TensorFlow": "tensorflow", "Keras": "keras"}
    versions = {title: importlib.metadata.version(name) for title, name in titles.items()}
    text = ", ".join(f"{title} {version}" for title, version in versions.items())
    del versions["kdist"]
    return [good, Finding("packages", "good", "; ".join(filter(None, [text, untested(versions)])))]


def check_cores(root: Path = ROOT) -> Finding:
    """How many cores may this process use, and does a container limit their time?"""
    cores = sorted(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    if quota is None or quota >= len(cores):
        return Finding("cores", "good", f"{len(cores)}")
    listed = ",".join(map(str, cores[: math.ceil(quota)]))
    return Finding(
        "cores",
        "slow",
        f"{len(cores)}, but the container may use {quota:g} at a time: TensorFlow starts"
        f" {len(cores)} threads, which are all stopped whenever they have used it up",
        f"start programs with `taskset --cpu-list {listed}`, or give the container more CPU",
    )


def size(count: float) -> str:
    """Write bytes with their unit: `23.5 GiB`, `512 MiB`."""
    if count >= _GIB:
        return f"{count / _GIB:.1f} GiB"
    return f"{count / 2**20:.0f} MiB"


def check_memory(root: Path = ROOT) -> Finding:
    """Is there memory left, of the machine's or of the container's?"""
    total, free = total_memory(root), available_memory(root)
    if total is None or free is None:
        return Finding("memory", "absent", "unknown: /proc/meminfo cannot be read")
    text, remedy = f"{size(free)} free of {size(total)}", "end other programs"
    if memory_limit(root) == total:
        text += " (the container's limit)"
        remedy += ", or give the container more memory (docker run --memory)"
    if free >= _LITTLE_MEMORY:
        return Finding("memory", "good", text)
    return Finding("memory", "broken" if free < _TOO_LITTLE_MEMORY else "slow", text, remedy)


def check_shared_memory(folder: Path = ROOT / "dev/shm") -> list[Finding]:
    """Is `/dev/shm` large enough for processes that share their data, such as NCCL's?"""
    if not folder.is_dir():
        return []
    free = _free(folder)
    if free >= _LITTLE_SHARED_MEMORY:
        return [Finding("/dev/shm", "good", f"{size(free)} free")]  # noqa: S108 - a name
    return [
        Finding(
            "/dev/shm",  # noqa: S108 - a name
            "slow",
            f"{size(free)} free: too little for NCCL between several processes, and for loaders"
            " with processes of their own",
            "docker run --shm-size=1g, or a memory-backed volume at /dev/shm in Kubernetes",
        )
    ]


def check_disk(name: str, folder: str | os.PathLike[str], *, option: str) -> Finding:
    """Can a folder be written, and has its disk space left?

    Args:
        name: What the folder is for.
        folder: It; it may not exist yet, and is not made.
        option: The option or variable that names it.
    """
    path = Path(folder)
    remedy = f"remove files, or pass another {option}"
    try:
        check_writable_folder(path, option=option)
    except UserError as error:
        return Finding(name, "broken", str(error).partition(";")[0], f"pass another {option}")
    made = missing_folders(path)
    free = _free(made[-1].parent if made else path)
    text = f"{size(free)} free in {path}"
    if free < _TOO_LITTLE_DISK:
        return Finding(name, "broken", text, remedy)
    if free < _LITTLE_DISK:
        return Finding(name, "slow", f"{text}: a few checkpoints fill it", remedy)
    return Finding(name, "good", text)


def _free(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def check_wandb() -> Finding:
    """Are W&B's runs online, and if so, is its server there?"""
    from ..tracking.wandb_account import asked_mode, wandb_mode

    mode = wandb_mode()
    if mode in ("offline", "disabled"):
        if asked := asked_mode():
            return Finding("W&B", "absent", f"WANDB_MODE={asked}")
        remedy = "`wandb login`, if you want one"
        return Finding("W&B", "absent", "no account: runs are kept here", remedy)
    url = urllib.parse.urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host = url.hostname or ""
    try:
        socket.create_connection((host, url.port or 443), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        text = f"an account, but {host} cannot be reached: {error.strerror or error}"
        remedy = "set WANDB_MODE=offline, and send the runs later with `wandb sync`"
        return Finding("W&B", "slow", text, remedy)
    text = f"an account, and {host} can be reached (the key is not checked)"
    return Finding("W&B", "good", text)
