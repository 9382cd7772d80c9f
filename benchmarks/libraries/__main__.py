"""Libraries of Keras models under kdist: do they train as in plain Keras?

    python -m benchmarks.libraries                                  # every model, about an hour
    python -m benchmarks.libraries --library keras-hub --model GPT2CausalLM
    python -m benchmarks.libraries --folder environments            # keeps the environment

Makes a virtual environment with kdist's dependencies and the libraries, and trains small random
models of each library in a process of its own: without a strategy, and on 1, 2 and 3 replicas, in
batches of 4, 4 and 2 rows for two epochs. Compares weights, history, scores and predictions, and
prints a Markdown table. `equal` is within 1e-9 of the largest value of each array in float64,
1e-4 in float32; `rounding` is a difference that noise in the initial weights makes in plain Keras,
too. Times of steps are measured on two replicas, as ratios to plain Keras. An environment takes
4 GB, and is removed without `--folder`. The exit code is 1 if anything differs.
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

from kdist.strategies.hardware import describe_host

from ..environments import install, installed_versions, make_environment
from ..measure import ROOT, Table, make_parser

KERAS, TENSORFLOW = "3.15.1", "2.21.0"
LIBRARIES = {
    "keras-hub": "0.32.0",
    "keras-rs": "0.4.0",
    "bayesflow": "2.0.12",
    "keras-tcn": "3.5.6",
    "keras-mdn-layer": "1.0.0",
    "ncps": "1.0.1",
    "hgq2": "0.2.0",
    "scikeras": "0.13.0",
    "kimm": "0.2.5",
    "medicai": "0.0.4",
}
REPLICAS = (1, 2, 3)
EQUAL = {"float64": 1e-9, "float32": 1e-4}
GROWTH = 20.0  # a difference up to this times that of noise in the initial weights is rounding
CHAOS = 1e-2  # where rounding may be more than this, nothing is shown


def main() -> int:
    """Run the libraries; return the exit code."""
    parser = make_parser(__doc__)
    parser.add_argument("--library", nargs="+", choices=LIBRARIES, default=[*LIBRARIES])
    parser.add_argument("--model", nargs="+", help="only models of these names")
    parser.add_argument("--folder", type=Path, help="where the environment is made, and kept")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train_library(options.library[0], options.model)
        return 0
    wanted = [f"keras=={KERAS}", f"tensorflow=={TENSORFLOW}"]
    wanted += [f"{name}=={version}" for name, version in LIBRARIES.items()]
    details: list[str] = []
    wrong = False
    with make_environment(options.folder, "libraries") as folder:
        install(folder, wanted, without=("keras", "tensorflow"))
        print("{date}, {cpu}, {cores} cores, Python {python}, ".format(**describe_host()), end="")
        print(
            "Keras {}, TensorFlow {}\n".format(*installed_versions(folder, "keras", "tensorflow"))
        )
        columns = [
            "library",
            "model",
            *(f"{count} replica{'s' * (count > 1)}" for count in REPLICAS),
        ]
        table = Table(*columns, "first step", "later step", "kdist says", file=options.json)
        for library in options.library:
            for result in results_of(folder, library, options.model):
                table.add(f"{library} {LIBRARIES[library]}", *format_cells(result))
                wrong |= result.get("wrong", False)
                if result.get("where"):
                    details.append(f"{library}, {result['model']}: {'; '.join(result['where'])}")
    print("".join(f"\n- {line}" for line in details))
    return int(wrong)


def results_of(folder: Path, library: str, models: list[str] | None) -> Iterator[dict[str, Any]]:
    """Yield the results of a library's models; if the process dies, go on with the next model."""
    names = None
    while names is None or names:
        child = start_child(folder, library, models if names is None else names)
        for line in child.stdout or ():
            if line.startswith('["models"'):
                names = json.loads(line)[1:]
            elif line.startswith('{"model"') and names:
                names.pop(0)
                yield json.loads(line)
        code = child.wait()
        if names is None:
            raise SystemExit(f"{library}: no model was made, exit code {code}")
        if code and names:
            crash = f"crash: exit code {code}"
            yield {"model": names.pop(0), "found": [crash], "where": [crash], "wrong": True}


def start_child(folder: Path, library: str, models: list[str] | None) -> subprocess.Popen[str]:
    """Start the process that trains models of a library in the environment."""
    variables = {
        "KERAS_BACKEND": "tensorflow",
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    only = ["--model", *models] if models else []
    return subprocess.Popen(
        [
            *(folder / "bin" / "python", "-m", "benchmarks.libraries", "--train"),
            *("--library", library, *only),
        ],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL,
        text=True,
    )


def format_cells(result: dict[str, Any]) -> list[str]:
    """Return the cells of a row behind the library."""
    outcomes = result["found"] + [""] * (len(REPLICAS) - len(result["found"]))
    notes = ["`strategy.build`"] * result.get("built", False)
    notes += ["float32"] * (result.get("dtype") == "float32")
    name = f"{result['model']} ({', '.join(notes)})" if notes else result["model"]
    ratios = [f"{ratio:.1f}" for ratio in result.get("ratios", [])] or ["", ""]
    return [name, *outcomes, *ratios, "; ".join(shorten_messages(result.get("warned", [])))]


def shorten_messages(warned: list[str]) -> list[str]:
    """Return messages in short: of steps with parts that are computed whole only the largest."""
    shares = [
        re.search(r"about (\d+)% of this step cannot be divided.*?: (.*)", text) for text in warned
    ]
    whole = max((share for share in shares if share), key=lambda share: int(share[1]), default=None)
    other_messages = [text for text, share in zip(warned, shares, strict=True) if share is None]
    return (
        other_messages
        if whole is None
        else [f"{whole[1]} % whole: {whole[2].split('; ')[0]}", *other_messages]
    )


# The process of a library


def train_library(library: str, models: list[str] | None) -> None:
    """Train the models of a library; print their names, and a line of JSON for each."""
    import kdist

    kdist.MirroredStrategy(replicas=max(REPLICAS))  # before TensorFlow starts: splits the CPU
    from .cases import CASES
    from .models import bayesflow, images, keras_hub, keras_rs, layers  # noqa: F401

    cases = [case for case in CASES if case.library == library]
    cases = [case for case in cases if models is None or case.name in models]
    print(json.dumps(["models", *(case.name for case in cases)]), flush=True)
    for case in cases:
        print(json.dumps({"model": case.name} | compare(case)), flush=True)


def compare(case: Any) -> dict[str, Any]:
    """Train a model in plain Keras and on all numbers of replicas, and compare."""
    import kdist

    from .cases import find_difference, train

    try:
        case.make()  # its imports may draw random numbers
        plain = train(case)
    except Exception as error:
        return {"found": [f"not in plain Keras: {describe_error(error)}"]}
    result: dict[str, Any] = {"dtype": case.dtype, "built": case.built, "wrong": False}
    result |= {"found": [], "where": [], "ratios": [], "warned": []}
    noise = None
    for replicas in REPLICAS:
        try:
            trained = train(case, kdist.MirroredStrategy(replicas=replicas))
        except Exception as error:
            result["found"].append(describe_error(error))
            result["wrong"] = True
            continue
        known = [*plain.warned, *result["warned"]]
        result["warned"] += [text for text in trained.warned if text not in known]
        if replicas == 2:
            first = trained.first_step / plain.first_step
            result["ratios"] = [first, trained.second_epoch_step / plain.second_epoch_step]
        gap, name = find_difference(plain, trained)
        if gap <= EQUAL[case.dtype]:
            result["found"].append("equal")
            continue
        result["where"].append(f"{replicas} replicas: {gap:.2g} in {name}")
        if noise is None:
            noise = find_difference(plain, train(case, noise=case.noise))
            result["where"].append(f"noise: {noise[0]:.2g} in {noise[1]}")
        is_rounding = gap <= GROWTH * noise[0] < CHAOS
        result["found"].append(f"rounding: {gap:.0e}" if is_rounding else f"**off by {gap:.1g}**")
        result["wrong"] |= not is_rounding
    return result


def describe_error(error: Exception) -> str:
    """Return the error's type and first line; all of it goes to standard error."""
    print(repr(error), file=sys.stderr)
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:200]}"


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main())
