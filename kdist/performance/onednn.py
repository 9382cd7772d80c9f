"""Enable TensorFlow's oneDNN kernels on CPUs where they are off by default."""

import os
import sys
from pathlib import Path

from .hardware import CPUINFO, cpu_flags

VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
_FLAGS = {"avx2", "fma"}


def enable_onednn(cpuinfo: Path = CPUINFO) -> None:
    """Enable oneDNN in TensorFlow if the CPU has AVX2 and FMA and the user has not decided.

    TensorFlow decides when it is imported, and enables oneDNN by default only on CPUs with AVX-512
    VNNI or newer (its util/port.cc, `IsMKLEnabled`). Its other kernels are compiled for AVX without
    FMA: on an AVX2 machine a training step of a convolutional network takes twice as long with them
    (`kdist bench`). GPUs are not affected.

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
