"""What TensorFlow says of this machine, and the program that asks it.

`python -m kdist.doctor.tensorflow_facts` is a process of its own, as TensorFlow may crash, hang, or
not be there. It prints a line of JSON for each stage, so that what came before is not lost.
"""

import contextlib
import ctypes
import importlib.metadata
import io
import json
import os
import queue
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..launch.child import PIPE, Child

LIMIT_SECONDS: Mapping[str, float] = {
    "tensorflow": 180,
    "devices": 60,
    "keras": 60,
    "all_reduce": 120,
}
"""Of each stage; a first start reads a gigabyte of files from a disk that may be slow."""
STAGES = tuple(LIMIT_SECONDS)

# The libraries that TensorFlow loads, for CUDA 12, and the packages that have them.
LIBRARIES: Mapping[str, str] = {
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
    "libcufft.so.11": "nvidia-cufft-cu12",
    "libcusolver.so.11": "nvidia-cusolver-cu12",
    "libcusparse.so.12": "nvidia-cusparse-cu12",
    "libcupti.so.12": "nvidia-cuda-cupti-cu12",
    "libcudnn.so.9": "nvidia-cudnn-cu12",
    "libnccl.so.2": "nvidia-nccl-cu12",
}
DRIVER = "libcuda.so.1"

_ROUNDS = 7
_BYTES = 64 * 10**6


@dataclass
class TensorFlowFacts:
    """What the process found.

    Attributes:
        facts: Of each stage that ended well.
        errors: Why a stage did not.
        messages: What TensorFlow printed.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    messages: str = ""

    def build(self, name: str) -> Any:
        """Return a fact of TensorFlow's build, such as `"cuda_version"`; `None` if unknown."""
        return self.facts.get("tensorflow", {}).get("build", {}).get(name)


def read_facts(
    replicas: int,
    *,
    environment: Mapping[str, str] | None = None,
    command: Sequence[str] = (sys.executable, "-m", "kdist.doctor.tensorflow_facts"),
    limits: Mapping[str, float] = LIMIT_SECONDS,
) -> TensorFlowFacts:
    """Start the process, and read what it finds.

    Args:
        replicas: Of the all-reduce; 0 for every GPU, else two logical CPUs.
        environment: The variables of the environment; by default this process's.
        command: The program, before the number of replicas.
        limits: Seconds for each stage.
    """
    # Its messages say which library it could not load.
    own = {"TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONUNBUFFERED": "1"}
    found = TensorFlowFacts()
    with tempfile.TemporaryFile() as messages:
        with Child(
            [*command, str(replicas)],
            environment={**(environment or {}), **own},
            output=PIPE,
            errors=messages,
        ) as child:
            _read_stages(child, found, limits)
        messages.seek(0)
        found.messages = messages.read().decode(errors="replace")
    return found


def _read_stages(child: Child, found: TensorFlowFacts, limits: Mapping[str, float]) -> None:
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_pass_on, args=(child, lines), daemon=True).start()
    for stage in STAGES:
        try:
            line = lines.get(timeout=limits[stage])
        except queue.Empty:
            found.errors[stage] = f"not done after {limits[stage]:g} seconds"
            return
        if not line:
            with contextlib.suppress(TimeoutError):
                child.wait(5)
            found.errors[stage] = _how_it_ended(child.code)
            return
        answer = json.loads(line)
        if "error" in answer:
            found.errors[stage] = answer["error"]
            if stage == "tensorflow":
                return
        else:
            found.facts[stage] = answer["facts"]


def _pass_on(child: Child, lines: "queue.Queue[str]") -> None:
    with child.streams[0] or io.BytesIO() as stream:
        for line in map(bytes.decode, stream):
            if line.startswith('{"stage": '):  # not what a module prints that Python itself imports
                lines.put(line)
    lines.put("")


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"


def main() -> None:
    """Print the facts of all stages; the argument is the number of replicas of the all-reduce."""
    replicas = int(sys.argv[1])
    # Whatever libraries print goes to standard error.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as facts:
        os.dup2(2, 1)

        def stage(name: str, find: Callable[[], Any]) -> None:
            try:
                found = {"stage": name, "facts": find()}
            except Exception as error:
                found = {"stage": name, "error": f"{type(error).__name__}: {error}"}
            print(json.dumps(found), file=facts, flush=True)
            if "error" in found and name == "tensorflow":
                sys.exit()

        finders = (_tensorflow, _devices, _keras, lambda: _all_reduce(replicas))
        for name, find in zip(STAGES, finders, strict=True):
            stage(name, find)


def _tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    return {"version": tf.__version__, "build": dict(tf.sysconfig.get_build_info())}


def _devices() -> dict[str, Any]:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:  # other programs may use them
        tf.config.experimental.set_memory_growth(gpu, True)
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    names = [str(one.get("device_name", "GPU")) for one in details]
    # Afterwards: a library that is loaded here, TensorFlow would find in turn.
    folders = [Path(part) / "nvidia" for part in sys.path]
    return {
        "gpus": names,
        "libraries": {name: load(name, folders) for name in (DRIVER, *LIBRARIES)},
        "packages": package_versions({*LIBRARIES.values()}),
    }


def load(name: str, folders: Iterable[Path]) -> str:
    """Load a library, as TensorFlow would: from the system's folders, or a package's.

    Args:
        name: Its file name.
        folders: Those in which packages such as `nvidia-cudnn-cu12` have theirs.

    Returns:
        Its version if it has one, else `"found"`; empty if it cannot be loaded.
    """
    paths = [name, *(str(p) for folder in folders for p in sorted(folder.glob(f"*/lib/{name}")))]
    for path in paths:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        return _version(name, library)
    return ""


def _version(name: str, library: ctypes.CDLL) -> str:
    if name.startswith("libcudnn"):
        library.cudnnGetVersion.restype = ctypes.c_size_t
        number = int(library.cudnnGetVersion())  # 90300 is 9.3.0
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    if name.startswith("libnccl"):
        code = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(code))  # 22707 is 2.27.7
        return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"
    return "found"


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in sorted(names):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _keras() -> dict[str, Any]:
    import keras

    return {"version": keras.__version__, "backend": keras.backend.backend()}


def _all_reduce(replicas: int) -> dict[str, Any]:
    """Time the sum of one buffer over the devices of a strategy; 0 replicas choose them."""
    import tensorflow as tf

    from ..distribute.cluster import check_tf_config
    from ..distribute.devices import first_devices, stock_strategy

    check_tf_config(os.environ.get("TF_CONFIG", ""))
    gpus = len(tf.config.list_physical_devices("GPU"))
    if replicas == 0:
        replicas = gpus or 2
    if replicas == 1:
        return {"replicas": 1}
    # Of TensorFlow, as kdist's steps see one device, and reduce what they need by themselves.
    devices = first_devices(replicas)
    strategy = stock_strategy(devices)
    count = _BYTES // 4

    # As arguments: TensorFlow would add up constants while it traces.
    buffers = strategy.experimental_distribute_values_from_function(
        lambda context: tf.fill((count,), context.replica_id_in_sync_group + 1.0)
    )

    def add(buffer: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, buffer)

    def ends_of_sum(buffer: Any) -> Any:
        total = add(buffer)
        return tf.stack([total[0], total[-1]])  # little to copy to the host

    whole = strategy.experimental_local_results(_step(strategy, add)(buffers))
    sums = [float(value) for one in whole for value in (tf.reduce_min(one), tf.reduce_max(one))]
    step = _step(strategy, ends_of_sum)
    return {
        "replicas": replicas,
        "devices": devices,
        "bytes": 4 * count,
        "seconds": _median_seconds(lambda: _wait(strategy, step(buffers))),
        "sums": sums,
        "expected": replicas * (replicas + 1) / 2,
    }


def _step(strategy: Any, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import tensorflow as tf

    step: Callable[[Any], Any] = tf.function(lambda values: strategy.run(work, (values,)))
    return step


def _wait(strategy: Any, value: Any) -> None:
    for one in strategy.experimental_local_results(value):
        one.numpy()


def _median_seconds(work: Callable[[], None]) -> float:
    seconds: Sequence[float] = []
    for _ in range(_ROUNDS + 1):  # the first traces
        begin = time.perf_counter()
        work()
        seconds = [*seconds, time.perf_counter() - begin]
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
