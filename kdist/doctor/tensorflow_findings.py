"""What the facts of TensorFlow mean: imports, GPUs, libraries, and the all-reduce."""

import importlib.metadata
import math
import re
from collections.abc import Mapping

from .finding import Finding, State
from .gpus import Driver
from .tensorflow_facts import DRIVER, LIBRARIES, TensorFlowFacts

_INSTALL = "in a checkout of kdist, pip install '.[cuda]'"
_UNKNOWN = "unknown, as TensorFlow cannot be imported"
_CUDNN, _NCCL = "libcudnn.so.9", "libnccl.so.2"
_HIDES = "CUDA_VISIBLE_DEVICES"
# A PCIe 3.0 x16 slot has 12 GB/s, through the CPU's memory about half; less than a quarter has
# another cause.
_SLOW_BYTES_PER_SECOND = 3e9
_LAST_LINES = 3
_USER_ERROR = "UserError: "
_OTHER_BACKENDS = ("jax", "torch", "openvino")
_USE_TENSORFLOW = "set KERAS_BACKEND=tensorflow, or change it in ~/.keras/keras.json"


def find_imports(found: TensorFlowFacts) -> list[Finding]:
    """Can TensorFlow and Keras be imported, and does Keras use TensorFlow?"""
    if why := found.errors.get("tensorflow"):
        return [Finding("import tensorflow", "broken", *_failed_import(why, found.messages))]
    findings = [Finding("import tensorflow", "good", "works")]
    if why := found.errors.get("keras"):
        remedy = "pip install --force-reinstall keras"
        if any(f"No module named '{name}" in why for name in _OTHER_BACKENDS):
            remedy = _USE_TENSORFLOW
        return [*findings, Finding("import keras", "broken", why, remedy)]
    backend = found.facts.get("keras", {}).get("backend")
    if backend is None:
        return findings
    if backend != "tensorflow":
        return [*findings, Finding("import keras", "broken", f"uses {backend}", _USE_TENSORFLOW)]
    return [*findings, Finding("import keras", "good", "uses TensorFlow")]


def _failed_import(why: str, messages: str) -> tuple[str, str]:
    if "SIGILL" in why:
        return why, "the CPU lacks an instruction of TensorFlow's: use another machine"
    if "No module named 'tensorflow'" in why:
        return why, "pip install tensorflow, in the environment that has kdist"
    if "not done" in why:
        remedy = "try again; put the environment on a local disk"
        return f"{why}: a slow disk, or a driver that hangs", remedy
    lines = [line for line in messages.splitlines() if line.strip()][-_LAST_LINES:]
    text = why if "exit code" not in why and "ended by" not in why else f"{why}: {' '.join(lines)}"
    return text, "pip install --force-reinstall tensorflow, or make a new environment with kdist"


def find_tensorflow_gpus(
    found: TensorFlowFacts, driver: Driver, environment: Mapping[str, str]
) -> Finding:
    """Does TensorFlow find the machine's GPUs, and if not, why?"""
    name = "GPUs in TensorFlow"
    if "devices" not in found.facts:
        why = found.errors.get("devices")
        if why is None:
            return Finding(name, "absent", _UNKNOWN)
        return Finding(name, "broken", why, "see the line of the GPU driver, and restart")
    seen = found.facts["devices"]["gpus"]
    count, listed = len(seen), len(driver.gpus)
    if not driver.present and not seen:
        return Finding(name, "absent", "none")
    if _HIDES in environment:
        shown = shown_gpus(environment[_HIDES], listed)
        if shown <= count < max(listed, 1):
            text = f"{count}, as {_HIDES}={environment[_HIDES]!r}"
            state: State = "good" if count else "absent"
            return Finding(name, state, text, f"unset {_HIDES} for all")
        listed = shown
    if seen and count >= listed:
        return Finding(name, "good", f"{count}: {', '.join(dict.fromkeys(seen))}")
    if found.build("is_cuda_build") is False:
        return Finding(
            name,
            "broken",
            "none: this TensorFlow was built without CUDA",
            f"pip uninstall tensorflow tensorflow-cpu, then {_INSTALL}",
        )
    text = f"{count or 'none'}{f' of {listed}' if listed and count else ''}"
    if missing := _missing(found):
        return Finding(name, "broken", f"{text}: {', '.join(missing)} missing", _INSTALL)
    said = _reason(found.messages)
    remedy = "see the lines of the GPU driver and the libraries"
    return Finding(name, "broken", f"{text}{f': {said}' if said else ''}", remedy)


def shown_gpus(value: str, listed: int) -> int:
    """Return how many GPUs a `CUDA_VISIBLE_DEVICES` shows: those before the first invalid one.

    Args:
        value: Of the variable.
        listed: The machine's GPUs; 0 if unknown.

    Example:
        >>> shown_gpus("0,1,-1", 8), shown_gpus("0,9", 8), shown_gpus("", 8)
        (2, 1, 0)
    """
    names = [name.strip() for name in value.split(",")]
    valid = [
        bool(name) and name != "-1" and not (name.isdecimal() and int(name) >= (listed or math.inf))
        for name in names
    ]
    return [*valid, False].index(False)


def _missing(found: TensorFlowFacts) -> list[str]:
    libraries: Mapping[str, str] = found.facts.get("devices", {}).get("libraries", {})
    return [name for name, version in libraries.items() if not version]


def _reason(messages: str) -> str:
    """What TensorFlow says of CUDA, without time and place."""
    lines = re.findall(r"^.*(?:cuInit|CUDA_ERROR|Cannot dlopen|cuda).*$", messages, re.M | re.I)
    return re.sub(r"^.*?\] ", "", lines[-1]).strip() if lines else ""


def find_libraries(found: TensorFlowFacts, driver: Driver) -> list[Finding]:
    """Are CUDA, cuDNN and NCCL there, in the versions that TensorFlow was built with?"""
    libraries = found.facts.get("devices", {}).get("libraries")
    if libraries is None:
        return [Finding(name, "absent", _UNKNOWN) for name in ("CUDA", "cuDNN", "NCCL")]
    cuda = found.build("cuda_version") or ""
    if not cuda:
        text = "this TensorFlow was built without it"
        return [Finding(name, "absent", text) for name in ("CUDA", "cuDNN", "NCCL")]
    toolkit = {n: v for n, v in libraries.items() if n not in (DRIVER, _CUDNN, _NCCL)}
    if not cuda.startswith("12."):
        text = f"{cuda}, whose libraries this version of kdist does not know"
        return [Finding("CUDA", "absent", text)]
    return [
        _judge_cuda(toolkit, libraries[DRIVER], cuda, driver),
        _judge_library("cuDNN", _CUDNN, libraries, found, driver),
        _judge_library("NCCL", _NCCL, libraries, found, driver),
    ]


def _judge_cuda(toolkit: Mapping[str, str], library: str, cuda: str, driver: Driver) -> Finding:
    missing = [name for name, version in toolkit.items() if not version]
    if not driver.present:
        there = "not installed" if missing else "installed"
        return Finding("CUDA", "absent", f"{cuda}: {there}, and not needed without a GPU")
    if not library:
        return Finding(
            "CUDA",
            "broken",
            f"{DRIVER}, a part of the driver, is missing",
            "in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility; else install the driver"
            " again",
        )
    if missing:
        packages = dict.fromkeys(LIBRARIES[name] for name in missing)
        text = f"{', '.join(missing)} missing ({', '.join(packages)})"
        return Finding("CUDA", "broken", f"{cuda}: {text}", _INSTALL)
    return Finding("CUDA", "good", f"{cuda}: all {len(toolkit)} libraries found")


def _judge_library(
    name: str,
    library: str,
    libraries: Mapping[str, str],
    found: TensorFlowFacts,
    driver: Driver,
) -> Finding:
    version, package = libraries[library], LIBRARIES[library]
    if not driver.present:
        text = version or "not installed"
        return Finding(name, "absent", f"{text}, and not needed without a GPU")
    if not version:
        return Finding(name, "broken", f"{library} is missing ({package})", _INSTALL)
    installed = found.facts["devices"]["packages"].get(package)
    least = _least_version(package)
    if least and _numbers(version) < _numbers(least):
        text = f"{version}, but TensorFlow needs {least} or newer"
        where = "" if installed else ", and take the folder of the older one out of LD_LIBRARY_PATH"
        return Finding(name, "broken", text, f"pip install --upgrade {package}{where}")
    return Finding(name, "good", version)


def _least_version(package: str) -> str:
    """The least version of a package that TensorFlow's own requirements name: its first numbers."""
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("tensorflow") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    for one in map(Requirement, lines):
        if one.name == package:
            least = next((part.version for part in one.specifier if part.operator == ">="), "")
            return ".".join(least.split(".")[:3])
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def find_tf_config(found: TensorFlowFacts, environment: Mapping[str, str]) -> list[Finding]:
    """Does `TF_CONFIG` name a cluster with this process in it, if it is set?"""
    name = "TF_CONFIG"
    if not environment.get(name, "").strip():
        return []
    if why := _wrong_cluster(found):
        return [Finding(name, "broken", why, f"change {name}, or unset it")]
    if "all_reduce" not in found.facts:
        return [Finding(name, "absent", "not read: see the other lines")]
    return [Finding(name, "good", "set, and this process is in its cluster")]


def _wrong_cluster(found: TensorFlowFacts) -> str:
    """What is wrong with `TF_CONFIG`; empty if that is not known."""
    why = found.errors.get("all_reduce", "").removeprefix(_USER_ERROR)
    return why if why.startswith("TF_CONFIG ") else ""


def find_all_reduce(found: TensorFlowFacts) -> Finding:
    """Is the sum over all devices right, and how long does it take?"""
    name = "all-reduce"
    backend = found.facts.get("keras", {}).get("backend", "tensorflow")
    if "keras" in found.errors or backend != "tensorflow":
        return Finding(name, "absent", "not timed: see the line of Keras")
    if _wrong_cluster(found):
        return Finding(name, "absent", "not timed: see the line of TF_CONFIG")
    if why := found.errors.get("all_reduce"):
        if why.startswith(_USER_ERROR):  # which says what to do
            return Finding(name, "broken", why.removeprefix(_USER_ERROR))
        remedy = "see the lines of NCCL and peer access; NCCL_DEBUG=INFO"
        return Finding(name, "broken", why, remedy)
    facts = found.facts.get("all_reduce")
    if facts is None:
        return Finding(name, "absent", _UNKNOWN if "tensorflow" in found.errors else "not reached")
    if facts["replicas"] == 1:
        return Finding(name, "absent", "needs two devices or more")
    wrong = [total for total in facts["sums"] if total != facts["expected"]]
    if wrong:
        text = f"the sum is {wrong[0]:g}, expected {facts['expected']:g}"
        return Finding(name, "broken", text, "update the driver and NCCL; test the GPUs' memory")
    replicas, seconds = facts["replicas"], facts["seconds"]
    # Each device sends and receives this part of the buffer in a ring: NCCL's "bus bandwidth".
    rate = 2 * (replicas - 1) / replicas * facts["bytes"] / seconds
    on_gpus = "GPU" in facts["devices"][0]
    kind = "GPUs" if on_gpus else "logical CPUs"
    text = (
        f"{facts['bytes'] / 1e6:g} MB over {replicas} {kind} in {1000 * seconds:.1f} ms"
        f" ({rate / 1e9:.1f} GB/s per device, median of 7)"
    )
    if on_gpus and rate < _SLOW_BYTES_PER_SECOND:
        remedy = "see the line of peer access; NCCL_DEBUG=INFO says which links NCCL uses"
        return Finding(name, "slow", text, remedy)
    return Finding(name, "good", text)
