"""The process of a candidate: it prepares, then does its work once per line of input."""

import importlib.metadata
import json
import os
import sys
import time
from typing import Any

from ..performance.process_memory import memory_now
from .driver import STARTED
from .workload import Unavailable
from .workloads import WORKLOADS

_VERSIONS = ("kdist", "tensorflow", "keras", "torch", "jax", "numpy")
_WARM_UPS = 2


def main() -> None:
    """Write JSON lines to standard output: facts, then the seconds of each turn."""
    # Output of libraries must not be mixed with these lines.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(**values: Any) -> None:
        print(json.dumps(values), file=channel, flush=True)

    try:
        workload = WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2]))
        start = time.perf_counter()
        workload.work()
        first = time.perf_counter() - start
        since_start = time.time() - float(os.environ[STARTED])
        for _ in range(_WARM_UPS - 1):
            workload.work()
    except Unavailable as reason:
        send(skipped=str(reason))
        return
    except Exception as error:
        send(failed=f"{type(error).__name__}: {error}")
        return
    seconds = {"first_seconds": first, "start_seconds": since_start}
    send(
        facts={**workload.facts, **seconds, "versions": _versions()},
        peak_mib=peak_mib(),
    )
    for _ in sys.stdin:
        try:
            send(seconds=workload.work(), peak_mib=peak_mib())
        except Exception as error:
            send(failed=f"{type(error).__name__}: {error}")
            return


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        if name in sys.modules:
            found[name] = importlib.metadata.version(name)
    return found


def peak_mib() -> float | None:
    """Return the peak resident memory of this process in MiB, if Linux shows it."""
    # Not `ru_maxrss`, which a child process inherits from its parent.
    peak = memory_now().get("VmHWM")
    return None if peak is None else peak / 2**20
