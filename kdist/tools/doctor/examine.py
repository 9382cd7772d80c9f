"""`examine_machine`: findings about versions, GPUs, and a sum over all devices."""

import dataclasses
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from ... import __version__
from ...processes import child
from ...processes.device_assignment import NVIDIA_SMI_SECONDS

_PROGRAM = (sys.executable, "-m", "kdist.tools.doctor.tensorflow_checks")
_TENSORFLOW_SECONDS = 300.0  # a first import reads a gigabyte of files
_SHOWN_ERROR_LINES = 3
_NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,driver_version,memory.free,memory.total",
    "--format=csv,noheader",
)
_NVIDIA_SMI_COLUMNS = 4


State = Literal["good", "slow", "broken", "absent"]
"""A `slow` part works below its possible speed; an `absent` part is not required."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A result of the examination: a line on the screen.

    `remedy` says how to fix the part; empty if there is nothing to fix.
    """

    name: str
    state: State
    text: str
    remedy: str = ""


def examine_machine(*, replicas: int | None = None) -> list[Finding]:
    """Examine the machine; the all-reduce takes all GPUs by default, or two logical CPUs."""
    version = f"{__version__}, with Python {platform.python_version()}"
    return [
        Finding("kdist", "good", version),
        *check_gpus(),
        *check_tensorflow({"replicas": replicas}),
    ]


def check_gpus() -> list[Finding]:
    """List the machine's GPUs with driver and memory, as `nvidia-smi` prints them."""
    name = "GPU driver"
    remedy = "restart the machine or the container, then run nvidia-smi"
    try:
        done = child.run_child(_NVIDIA_SMI, seconds=NVIDIA_SMI_SECONDS)
    except FileNotFoundError:
        remedy = "if there is a GPU, install its driver; in a container, use docker run --gpus all"
        return [Finding(name, "absent", "no nvidia-smi: the CPU is used", remedy)]
    except TimeoutError:
        text = f"nvidia-smi has not ended after {NVIDIA_SMI_SECONDS:g} seconds"
        return [Finding(name, "broken", text, remedy)]
    rows = [line.split(", ") for line in done.output.splitlines()]
    if done.exit_code or any(len(row) != _NVIDIA_SMI_COLUMNS for row in rows):
        text = " ".join(f"{done.output} {done.errors}".split())
        return [Finding(name, "broken", f"nvidia-smi: {text}", remedy)]
    return [
        Finding(f"GPU {index}", "good", f"{gpu}, driver {driver}, {free} free of {total}")
        for index, (gpu, driver, free, total) in enumerate(rows)
    ]


def check_tensorflow(
    arguments: Mapping[str, Any],
    *,
    program: Sequence[str] = _PROGRAM,
    seconds: float = _TENSORFLOW_SECONDS,
) -> list[Finding]:
    """Check TensorFlow in a separate process, because TensorFlow may crash or hang."""
    name = "TensorFlow"
    remedy = "pip install --force-reinstall tensorflow; after SIGILL, use a CPU with AVX"
    # At this level, TensorFlow prints the names of libraries that it could not load.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "0"}
    try:
        ended = child.run_child(
            program, seconds=seconds, arguments=arguments, environment=environment
        )
    except TimeoutError:
        text = f"import and all-reduce have not ended after {seconds:g} seconds"
        remedy = "set NCCL_DEBUG=INFO to see the last step; restart the machine"
        return [Finding(name, "broken", text, remedy)]
    findings = [Finding(**answer) for answer in ended.answers.values()]
    if ended.exit_code == 0:
        return findings
    lines = [line for line in ended.errors.splitlines() if line.strip()]
    text = ": ".join(
        [f"the check's process ended with {ended.exit.ending}", *lines[-_SHOWN_ERROR_LINES:]]
    )
    return [*findings, Finding(name, "broken", text, remedy)]


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a line per finding with its remedy below, and the number of findings in each state."""
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.state:6}  {finding.name:{width}}  {finding.text}")
        if finding.remedy:
            print(f"{'':{width + 10}}→ {finding.remedy}")
    counts = Counter(finding.state for finding in findings)
    print(f"\n{', '.join(f'{counts[state]} {state}' for state in get_args(State))}")
