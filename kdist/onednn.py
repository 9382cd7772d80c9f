"""TensorFlow's oneDNN kernels on CPUs where it leaves them out."""

import os
import sys
from pathlib import Path

from .hardware import CPUINFO, cpu_flags

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_FLAGS = {"avx2", "fma"}


def enable_onednn(cpuinfo: Path = CPUINFO) -> None:
    """Have TensorFlow use oneDNN, where that is not decided yet and the CPU has AVX2 and FMA.

    TensorFlow decides while it is imported, and turns oneDNN on by itself only for CPUs with
    AVX-512 VNNI or newer (its util/port.cc, `IsMKLEnabled`). Its other kernels are
    compiled for AVX without FMA: on an AVX2 machine a training step of a convolutional network
    takes twice as long with them (`kdist bench`). GPUs are not affected.

    Set `TF_ENABLE_ONEDNN_OPTS=0` to keep TensorFlow's choice.

    Args:
        cpuinfo: Where Linux tells what the CPU can do.
    """
    if (
        VARIABLE not in os.environ
        and "tensorflow" not in sys.modules
        and cpu_flags(cpuinfo) >= _FLAGS
    ):
        os.environ[VARIABLE] = "1"
