"""Enable TensorFlow's oneDNN kernels on CPUs where they are off by default."""

import os
import sys
from pathlib import Path

from .hardware import CPUINFO, cpu_flags

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_FLAGS = {"avx2", "fma"}
_DEFAULT_FLAGS = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}


def is_on_by_default(cpuinfo: Path = CPUINFO) -> bool:
    """Whether TensorFlow enables oneDNN on this CPU (its util/port.cc, `IsMKLEnabled`).

    Args:
        cpuinfo: The file in which Linux lists the CPU's features.
    """
    return bool(cpu_flags(cpuinfo) & _DEFAULT_FLAGS)


def enable_onednn(cpuinfo: Path = CPUINFO) -> None:
    """Enable oneDNN in TensorFlow if the CPU has AVX2 and FMA and the user has not decided.

    TensorFlow decides when it is imported, see `is_on_by_default`. Its other kernels are compiled
    for AVX without FMA: on an AVX2 machine a training step of a convolutional network takes twice
    as long with them (docs/results/speed.md). GPUs are not affected.

    Set `TF_ENABLE_ONEDNN_OPTS=0` to keep TensorFlow's choice.

    Args:
        cpuinfo: The file in which Linux lists the CPU's features.
    """
    if (
        VARIABLE not in os.environ
        and "tensorflow" not in sys.modules
        and cpu_flags(cpuinfo) >= _FLAGS
    ):
        os.environ[VARIABLE] = "1"
