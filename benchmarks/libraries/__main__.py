"""Libraries of Keras models under kdist: do they train as in plain Keras?

    python -m benchmarks.libraries                                  # every model, about an hour
    python -m benchmarks.libraries --library keras-hub --model GPT2CausalLM
    python -m benchmarks.libraries --folder environments            # keeps what it installs

Makes a virtual environment with kdist's dependencies and the libraries, and trains small random
models of each library in a process of its own: without a strategy, and on 1, 2 and 3 replicas, in
batches of 4, 4 and 2 rows for two epochs. Compares weights, history, scores and predictions, and
prints a Markdown table. `equal` is within 1e-9 of the largest value of each array in float64,
1e-4 in float32; `rounding` is what noise in the initial weights changes in plain Keras, too.
Steps are those on two replicas, as ratios to the time in plain Keras. An environment takes 4 GB,
and is removed without `--folder`. The exit code is 1 if anything differs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdist.strategies.hardware import host

from ..environments import ROOT, environment, install, installed
from .child import REPLICAS

KERAS, TENSORFLOW = "3.15.1", "2.21.0"
LIBRARIES = {
    "keras-hub": "0.32.0",
    "keras-rs": "0.4.0",
    "bayesflow": "2.0.12",
    "kgcnn": "4.0.2",
    "keras-tcn": "3.5.6",
    "keras-mdn-layer": "1.0.0",
    "ncps": "1.0.1",
    "hgq2": "0.2.0",
    "scikeras": "0.13.0",
    "kimm": "0.2.5",
    "medicai": "0.0.4",
    "kyolo": "0.1.5",
}
NEEDED = ["dm-tree"]  # imported by kgcnn, which does not require it


def main() -> int:
    """Run the libraries; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", nargs="+", choices=LIBRARIES, default=[*LIBRARIES])
    parser.add_argument("--model", nargs="+", help="only models of these names")
    parser.add_argument("--folder", type=Path, help="where the environment is made, and kept")
    options = parser.parse_args()
    wanted = [f"keras=={KERAS}", f"tensorflow=={TENSORFLOW}", *NEEDED]
    wanted += [f"{name}=={version}" for name, version in LIBRARIES.items()]
    with environment(options.folder, "libraries") as folder:
        install(folder, wanted, without=("keras", "tensorflow"))
        print("{date}, {cpu}, {cores} cores, Python {python}, ".format(**host()), end="")
        print("Keras {}, TensorFlow {}\n".format(*installed(folder, "keras", "tensorflow")))
        columns = ["library", "model", *map(_replicas, REPLICAS), "first step", "later step"]
        print(f"| {' | '.join(columns)} | kdist says |")
        print(f"|{' --- |' * (len(columns) + 1)}", flush=True)
        details: list[str] = []
        wrong = 0
        for library in options.library:
            for result in _results(folder, library, options.model):
                print(_row(f"{library} {LIBRARIES[library]}", result), flush=True)
                wrong += result.get("wrong", False)
                if result.get("where"):
                    details.append(f"{library}, {result['model']}: {'; '.join(result['where'])}")
    print("".join(f"\n- {line}" for line in details))
    return int(wrong > 0)


def _replicas(count: int) -> str:
    return f"{count} replica{'s' * (count > 1)}"


def _results(folder: Path, library: str, models: list[str] | None) -> Iterator[dict[str, Any]]:
    """Yield the results of a library's models; if the process dies, go on with the next model."""
    names = json.loads(_child(folder, library, "--names").communicate()[0].splitlines()[-1])
    names = [name for name in names if models is None or name in models]
    while names:
        child = _child(folder, library, "--model", *names)
        for line in child.stdout or ():
            if line.startswith('{"model"'):
                names.pop(0)
                yield json.loads(line)
        if child.wait():
            crash = f"crash: exit code {child.returncode}"
            yield {"model": names.pop(0), "found": [crash], "where": [crash], "wrong": True}


def _child(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    own = {
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.Popen(
        [folder / "bin" / "python", "-m", "benchmarks.libraries.child", *arguments],
        cwd=ROOT,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _row(library: str, result: dict[str, Any]) -> str:
    """Return a line of the table."""
    if "plain" in result:
        return f"| {library} | {result['model']} | not in plain Keras: {result['plain']} |"
    model = result["model"]
    notes = ["`strategy.build`"] * result.get("built", False)
    notes += ["float32"] * (result.get("dtype") == "float32")
    name = f"{model} ({', '.join(notes)})" if notes else model
    ratios = [f"{ratio:.1f}" for ratio in result.get("ratios", [])] or ["", ""]
    says = "; ".join(_said(result.get("warned", []))).replace("|", "\\|").replace("\n", " ")
    return f"| {' | '.join([library, name, *result['found'], *ratios, says])} |"


def _said(warned: list[str]) -> list[str]:
    """Return messages in short: of steps with parts that are computed whole only the largest."""
    shares = [
        re.search(r"about (\d+)% of this step cannot be divided.*?: (.*)", one) for one in warned
    ]
    whole = max((one for one in shares if one), key=lambda one: int(one[1]), default=None)
    others = [text for text, one in zip(warned, shares, strict=True) if one is None]
    return others if whole is None else [f"{whole[1]} % whole: {whole[2].split('; ')[0]}", *others]


if __name__ == "__main__":
    sys.exit(main())
