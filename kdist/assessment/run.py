"""`assess`: runs a script in a process of its own, and says what it has and has not met."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.datasets import DATASETS, DatasetName
from ..errors import ReportedError, UserError
from ..performance.machine import machine, on_cpu
from ..runs.text import count
from ..training.workers import worker_place
from .facts import Facts, read_facts
from .judgement import Line, has_passed, judge, scaling_rule
from .options import AssessOptions
from .recipe import recipe_command
from .targets import targets_of

_CPU_REPLICAS = 2
_USAGE_ERROR = 2
_GPUS = "CUDA_VISIBLE_DEVICES"

Start = Callable[[Mapping[str, Any], Sequence[str], Mapping[str, str], bool], int]
"""Observes a program in a process: order, program, environment, whether it prints; its code."""


def _print(line: str) -> None:
    print(line, flush=True)  # the script's own lines are between


def assess(
    options: AssessOptions | None = None,
    *,
    announce: Callable[[str], None] = _print,
    start: "Start | None" = None,
    devices: Sequence[str] | None = None,
) -> list[Line]:
    """Assess a script, or kdist's own recipe, as the course does.

    The script is run without arguments, until it meets the targets or the time is over, and its
    learning rates are then looked up with one replica, without training. On several GPUs it sees
    as many as there are to be replicas; a CPU is divided into as many.

    Args:
        options: What is assessed, and how.
        announce: Called with each line.
        start: Runs `kdist.assessment.observe` in a process.
        devices: What `kdist devices` lists, if it is known.

    Returns:
        A line for each requirement.

    Raises:
        UserError: The devices, or the images of the recipe, are not there; or there are several
            workers.
    """
    options = options or AssessOptions()
    if worker_place(os.environ).workers > 1:
        raise UserError(
            "kdist assess is for one worker, and TF_CONFIG has several: call it without launch"
        )
    about = machine(devices)
    most = _CPU_REPLICAS if on_cpu(about) else len(about["devices"])
    replicas = options.replicas or most
    if not on_cpu(about) and replicas > most:
        raise UserError(f"received replicas={replicas}, but there are {most} GPUs: pass fewer")
    with tempfile.TemporaryDirectory(prefix="kdist-assess-") as folder:
        runner = _Runner(options, Path(folder), start or _start, on_cpu=on_cpu(about))
        what = options.script or "kdist's recipe"
        announce(
            f"Assessment of generation {options.generation}: {what}, {count(replicas, 'replica')}"
        )
        facts = runner.observe(replicas)
        alone = Facts()
        if facts.epochs and replicas > 1:
            announce("Looking up its learning rates with one replica")
            alone = runner.observe(1, rehearsed=facts)
            if facts.is_cut and alone.peak and scaling_rule(facts, alone, replicas) is None:
                announce(f"Looking up those that were to come, with {count(replicas, 'replica')}")
                planned = runner.observe(replicas, rehearsed=facts)
                facts = dataclasses.replace(facts, planned_peak=planned.peak)
        elif facts.epochs:
            alone = dataclasses.replace(facts, error=None)
    name = facts.images.name if facts.images else ""
    targets = targets_of(options.generation, name)
    lines = judge(facts, alone, targets, replicas=replicas)
    for line in lines:
        announce(f"{line}")
    missed = sum(not line.passed for line in lines)
    announce("Passed" if has_passed(lines) else f"Not passed: {missed} of {len(lines)} lines")
    return lines


@dataclasses.dataclass(frozen=True)
class _Runner:
    """Runs what is assessed, each time in a process of its own."""

    options: AssessOptions
    folder: Path
    start: Start
    on_cpu: bool

    def observe(self, replicas: int, *, rehearsed: Facts | None = None) -> Facts:
        """Run it on a number of replicas, and return what it did.

        Args:
            replicas: Their number.
            rehearsed: The training whose learning rates alone are looked up.
        """
        rehearse = rehearsed is not None
        facts = self.folder / f"facts-{replicas}{'-rehearsed' * rehearse}.json"
        dataset = self.options.dataset if self.options.script else None
        order = {
            "facts": str(facts),
            "replicas": replicas,
            "generation": self.options.generation,
            "rehearse": rehearse,
            **({} if rehearsed is None else _as_observed(rehearsed)),
            "images": None if dataset is None else _sizes(dataset),
        }
        code = self.start(order, self._program(replicas), self._environment(replicas), not rehearse)
        found = read_facts(facts)
        if code == _USAGE_ERROR and self.options.script is None:
            raise ReportedError("kdist's recipe cannot be trained, for the reason that is printed")
        if code and found.error is None:
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            return dataclasses.replace(found, error=f"its process ends with {why}")
        return found

    def _program(self, replicas: int) -> list[str]:
        if self.options.script is not None:
            return [self.options.script]
        runs = self.folder / "runs" / f"{len([*self.folder.glob('runs/*')])}"
        return recipe_command(self.options, replicas=replicas, run_dir=runs)

    def _environment(self, replicas: int) -> dict[str, str]:
        """Without the GPUs that it is not to have."""
        environment = dict(os.environ)
        if not self.on_cpu:
            visible = environment.get(_GPUS, "").split(",") if environment.get(_GPUS) else None
            named = visible or [str(index) for index in range(replicas)]
            environment[_GPUS] = ",".join(named[:replicas])
        return environment


def _as_observed(facts: Facts) -> dict[str, Any]:
    """The order to rehearse a training."""
    return {"fits": facts.fits, "values": dict(facts.epochs[-1].values)}


def _sizes(dataset: DatasetName) -> dict[str, Any]:
    one = DATASETS[dataset]
    return {"name": one.title, "training": one.training_images, "test": one.test_images}


def _start(
    order: Mapping[str, Any], program: Sequence[str], environment: Mapping[str, str], prints: bool
) -> int:
    """Observe a program in a new process, and wait for it."""
    path = Path(f"{order['facts']}.order")
    path.write_text(json.dumps(order), encoding="utf-8")
    command = [sys.executable, "-m", "kdist.assessment.observe", str(path), *program]
    output = None if prints else subprocess.DEVNULL
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment)
    ) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
