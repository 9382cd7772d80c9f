"""Backends on two devices: do they train the same model as on one?

    python -m benchmarks.backends --jax JAX/bin/python --torch TORCH/bin/python    # ten minutes

Trains small models in float64 with kdist, stock Keras under `tf.distribute.MirroredStrategy`, Keras
on JAX with `keras.distribution.DataParallel`, and PyTorch's DistributedDataParallel, each on two
CPU devices, and compares the weights with those of the same backend on one device. Each comparison
is a process. JAX and PyTorch need environments of their own, and are left out without them:

    python -m venv JAX && JAX/bin/pip install jax keras
    python -m venv TORCH && TORCH/bin/pip install torch numpy
"""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .backend_cases import CASES
from .measure import ROOT, Table, make_parser

TITLES = {
    "kdist": "kdist",
    "stock": "tf.distribute",
    "jax": "Keras on JAX, DataParallel",
    "torch": "PyTorch, DDP",
}
EQUAL, ROUNDING = 1e-9, 1e-6  # `ROUNDING`: a backend rounds a part to float32
TIMEOUT_SECONDS = 300


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--jax", type=Path, help="Python of an environment with jax and keras")
    parser.add_argument("--torch", type=Path, help="Python of an environment with torch")
    parser.add_argument("--case", nargs="+", choices=CASES, default=[*CASES])
    options = parser.parse_args()
    this_python = Path(sys.executable)
    candidates = {
        "kdist": this_python,
        "stock": this_python,
        "jax": options.jax,
        "torch": options.torch,
    }
    pythons = {backend: python for backend, python in candidates.items() if python is not None}
    titles = [TITLES[backend] for backend in pythons]
    table = Table("case, 2 devices", *titles, file=options.json)
    for case in options.case:
        table.add(case, *(compare(python, backend, case) for backend, python in pythons.items()))


def compare(python: Path, backend: str, case: str) -> str:
    """Train a case on one device and on two, and describe the difference."""
    weights = train(python, backend, case)
    if "1" not in weights:
        return weights.get("missing") or "crash: " + textwrap.shorten(
            weights["crash"], 80, placeholder="…"
        )
    pairs = zip(weights["1"], weights["2"], strict=True)
    gap = max(float(np.max(np.abs(np.subtract(a, b)))) for a, b in pairs)
    if np.isnan(gap):
        return "another model: NaN"
    if gap <= ROUNDING:
        return "equal" if gap <= EQUAL else f"equal up to {gap:.0e}"
    return f"another model: off by {gap:.1g}"


def train(python: Path, backend: str, case: str) -> Mapping[str, Any]:
    """Train in a process of an interpreter; return weights on 1 and 2 devices, or its error."""
    script = ROOT / "benchmarks" / "backend_cases.py"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            [python, script, backend, case],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"crash": f"no end within {TIMEOUT_SECONDS} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"crash": last or f"exit code {done.returncode}"}
    weights: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return weights


if __name__ == "__main__":
    main()
