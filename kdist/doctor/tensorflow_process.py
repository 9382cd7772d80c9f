"""Runs `tensorflow_facts` in a process, with a limit of seconds for each stage."""

import contextlib
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .tensorflow_facts import STAGES

LIMIT_SECONDS: Mapping[str, float] = {
    "tensorflow": 180,
    "devices": 60,
    "keras": 60,
    "all_reduce": 120,
}
"""A first start reads a gigabyte of files from a disk that may be slow."""


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
    variables = {**os.environ, **(environment or {})}
    # Its messages say which library it could not load.
    variables["TF_CPP_MIN_LOG_LEVEL"] = "0"
    variables["PYTHONUNBUFFERED"] = "1"
    found = TensorFlowFacts()
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(  # noqa: S603 - this module's own program
            [*command, str(replicas)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=variables,
            start_new_session=True,
        )
        try:
            _read_stages(process, found, limits)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # in a driver that hangs
                process.wait(5)
        messages.seek(0)
        found.messages = messages.read().decode(errors="replace")
    return found


def _read_stages(
    process: "subprocess.Popen[str]", found: TensorFlowFacts, limits: Mapping[str, float]
) -> None:
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_pass_on, args=(process, lines), daemon=True).start()
    for stage in STAGES:
        try:
            line = lines.get(timeout=limits[stage])
        except queue.Empty:
            found.errors[stage] = f"not done after {limits[stage]:g} seconds"
            return
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            found.errors[stage] = _how_it_ended(process.returncode)
            return
        answer = json.loads(line)
        if "error" in answer:
            found.errors[stage] = answer["error"]
            if stage == "tensorflow":
                return
        else:
            found.facts[stage] = answer["facts"]


def _pass_on(process: "subprocess.Popen[str]", lines: "queue.Queue[str]") -> None:
    with process.stdout or io.StringIO() as stream:
        for line in stream:
            if line.startswith('{"stage": '):  # not what a module prints that Python itself imports
                lines.put(line)
    lines.put("")


def _how_it_ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"
