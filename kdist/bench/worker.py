"""The process of one candidate: it prepares, then does its work once for every line it gets."""

import importlib.metadata
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from .workload import Unavailable
from .workloads import WORKLOADS

_VERSIONS = ("kdist", "tensorflow", "keras", "torch", "jax", "numpy")
_WARM_UPS = 2


def main() -> None:
    """Speak JSON lines on standard output: what was prepared, then seconds, line by line."""
    # What libraries print must not get between the lines.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**values: Any) -> None:
        print(json.dumps(values), file=channel, flush=True)

    try:
        workload = WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2]))
        start = time.perf_counter()
        workload.work()
        first = time.perf_counter() - start
        for _ in range(_WARM_UPS - 1):
            workload.work()
    except Unavailable as reason:
        say(skipped=str(reason))
        return
    except Exception as error:
        say(failed=f"{type(error).__name__}: {error}")
        return
    say(facts={**workload.facts, "first_seconds": first, "versions": _versions()})
    for _ in sys.stdin:
        try:
            say(seconds=workload.work(), peak_mib=peak_mib())
        except Exception as error:
            say(failed=f"{type(error).__name__}: {error}")
            return


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        if name in sys.modules:
            found[name] = importlib.metadata.version(name)
    return found


def peak_mib() -> float | None:
    """The maximum of resident memory that this process had, in MiB, where Linux shows it."""
    # Not `ru_maxrss`, which a child begins with its parent's.
    status = Path("/proc/self/status")
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.M) if status.exists() else None
    return int(peak[1]) / 1024 if peak else None
