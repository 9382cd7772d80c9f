"""The CPU: its instructions, and how many cores a container may use."""

import math
import os

from ..performance.container_limits import cpu_quota
from ..performance.hardware import cpu_flags
from ..performance.onednn import VARIABLE
from .finding import Finding
from .machine import Machine

_OFF = ("0", "false")  # as TensorFlow reads a switch, in any case


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
    chosen = machine.environment.get(VARIABLE, "")
    if chosen.lower() in _OFF:
        text = f"turned off by {VARIABLE}={chosen}"
        return Finding("oneDNN", "slow", text, f"unset {VARIABLE}: kdist turns it on")
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
