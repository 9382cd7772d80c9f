"""Parity with one replica: stock Keras under `tf.distribute.MirroredStrategy`, and kdist.

    python -m benchmarks.parity                 # the cases of the README's table, two replicas
    python -m benchmarks.parity --all --replicas 3
    python -m benchmarks.parity --case bn_uneven clipnorm
    python -m benchmarks.parity --all --jit     # kdist alone, all of it compiled by XLA
    python -m benchmarks.parity --all --whole --replicas 8      # kdist alone, in one process
    python -m benchmarks.parity --all --workers 2 --replicas 1  # kdist alone, over workers

Each case of `tests/parity/cases.py` trains a small model in float64, on one replica of stock Keras
and on several logical CPUs, with the same global batches, and compares all results of training.
Each runs in a separate process, so that a crash is a result, too. Prints a Markdown table: `equal`
up to rounding (1e-9 in weights and predictions, 1e-6 in metrics), otherwise the largest difference
of a weight or prediction, or of a metric if the weights are equal. With `--jit`, one replica is
compiled by XLA, too; cases that stock Keras cannot train that way do not count. `--whole` also
counts the operations of the steps that every replica computes for the whole batch. `--workers`
starts processes of this machine, each with `--replicas`.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .measure import ROOT, Table, make_parser

TIMEOUT_SECONDS = 300
NOT_COMPILED = "not by stock Keras on one replica"
_WORKERS_CASES = 20  # at once: a group of processes ends at its first failure


def main() -> None:
    """Print the table, or with `--run` the result of one case as a line of JSON."""
    parser = make_parser(__doc__)
    parser.add_argument("--replicas", type=int, default=2, help="number of replicas (default 2)")
    parser.add_argument("--workers", type=int, default=0, help="with so many replicas each")
    parser.add_argument("--all", action="store_true", help="every case, not only the README's")
    parser.add_argument("--case", nargs="+", help="only these cases")
    parser.add_argument("--jit", action="store_true", help="compile with XLA; only kdist")
    parser.add_argument("--whole", action="store_true", help="count whole operations; only kdist")
    parser.add_argument("--run", choices=("stock", "kdist"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(_run_case(options.case[0], options.run, options.replicas, options.jit)))
        return
    known = _case_names(of_kdist=options.whole or options.workers > 0)
    names = options.case or (known if options.all else _import_cases()[0].IN_README)
    unknown = sorted(set(names) - set(known))
    if unknown:
        parser.error(f"unknown case {', '.join(unknown)}: known are {', '.join(known)}")
    if options.whole:
        _print_whole(names, options.replicas)
    elif options.workers:
        _print_workers(names, options.workers, options.replicas)
    else:
        _print_table(names, options.replicas, options.jit, options.json)


def _print_table(names: Sequence[str], replicas: int, jit: bool, file: Path | None) -> None:
    kinds = {"kdist": "kdist"} if jit else {"stock": "stock Keras", "kdist": "kdist"}
    results: dict[str, list[str]] = {kind: [] for kind in kinds}
    table = Table(f"case, {replicas} replicas{', XLA' * jit}", *kinds.values(), file=file)
    for name in names:
        for kind in kinds:
            results[kind].append(_run_in_process(name, kind, replicas, jit))
        table.add(name.replace("_", " "), *(results[kind][-1] for kind in kinds))
    equal = [
        f"**{outcomes.count('equal')} of {len(outcomes) - outcomes.count(NOT_COMPILED)}**"
        for outcomes in results.values()
    ]
    table.add("**equal**", *equal)


def _print_whole(names: Sequence[str], replicas: int) -> None:
    """Train the cases in this process, and count the operations that are computed whole."""
    cases, harness = _start_tensorflow(replicas)
    import kdist
    import keras
    from kdist.spmd import partition as steps

    explain, operations, whole = steps.explain_plan, 0, Counter[str]()

    def counted(plan: Any, *args: Any, **options: Any) -> Any:
        nonlocal operations
        operations += len(plan.operations)
        whole.update(planned.op.type for planned in plan.operations if planned.is_whole)
        return explain(plan, *args, **options)

    steps.explain_plan = counted
    different = []
    for name in names:
        case = cases.CASES[name]
        expected = harness.train(case)
        strategy = kdist.MirroredStrategy([f"/cpu:{index}" for index in range(replicas)])
        if harness.too_large(case, harness.differences(expected, harness.train(case, strategy))):
            different.append(name)
        keras.backend.clear_session()
    print(f"{len(names) - len(different)} of {len(names)} cases equal on {replicas} replicas")
    print("".join(f"  not {name}\n" for name in different), end="")
    share = whole.total() / operations
    print(f"{whole.total()} of {operations} operations are computed whole ({share:.2%}):")
    print("".join(f"  {count:3} {name}\n" for name, count in whole.most_common()), end="")


def _print_workers(names: Sequence[str], workers: int, replicas: int) -> None:
    """Run the cases in groups of workers; cases behind a failure run in another group."""
    different, remaining = [], list(names)
    while remaining:
        ran = _run_on_workers(remaining[:_WORKERS_CASES], workers, replicas)
        equal = [name for name in remaining if ran.get(name) == [""] * workers]
        failed = [name for name in remaining if name in ran and name not in equal]
        if not equal and not failed:  # the group has ended before its first line
            failed = remaining[:1]
        different += failed[:1]
        remaining = [name for name in remaining if name not in [*equal, *failed[:1]]]
        print("".join(f"  not {name}\n" for name in failed[:1]), end="", flush=True)
    equal_count = len(names) - len(different)
    print(f"{equal_count} of {len(names)} cases equal on {workers} workers x {replicas} replicas")


def _run_on_workers(names: Sequence[str], workers: int, replicas: int) -> dict[str, Any]:
    sys.path += [str(ROOT / "tests" / "workers")]
    run_group = importlib.import_module("group").run_group
    with tempfile.TemporaryDirectory(prefix="kdist-workers-") as folder:
        outcomes: dict[str, Any] = run_group(
            "parity", names, Path(folder, "group"), workers=workers, replicas=replicas
        )
    return outcomes


def _run_in_process(name: str, kind: str, replicas: int, jit: bool) -> str:
    """Run one case in a separate process, and describe its result."""
    command = [sys.executable, "-m", "benchmarks.parity", "--run", kind]
    command += ["--case", name, "--replicas", str(replicas), *(["--jit"] if jit else [])]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no end within {TIMEOUT_SECONDS} s"
    if done.returncode < 0:
        return f"crash: {signal.Signals(-done.returncode).name}"
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return _describe_outcome(json.loads(done.stdout.splitlines()[-1]))


def _describe_outcome(outcome: dict[str, Any]) -> str:
    if outcome.get("alone"):
        return NOT_COMPILED
    if "crash" in outcome:
        return f"crash: {outcome['crash']}"
    wrong = outcome["wrong"]
    if not wrong:
        return "equal"
    model = [wrong[name] for name in ("weights", "predictions", "copies") if name in wrong]
    gaps = model or list(wrong.values())
    place = "" if model else f" in {' and '.join(wrong)}"
    if any(gap != gap for gap in gaps):
        return f"NaN{place}"
    return f"off by {max(gaps):.1g}{place}" if max(gaps) < float("inf") else f"other shape{place}"


def _import_cases() -> tuple[Any, Any]:
    sys.path.insert(0, str(ROOT / "tests" / "parity"))
    return importlib.import_module("cases"), importlib.import_module("harness")


def _case_names(*, of_kdist: bool) -> list[str]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Stock Keras has no counterpart of kdist's layers.
    names = _import_cases()[0].CASES
    return [name for name in names if of_kdist or not name.startswith("kdist_bn")]


def _start_tensorflow(replicas: int) -> tuple[Any, Any]:
    """Start TensorFlow with a logical CPU for each replica, and return the cases' modules."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    warnings.simplefilter("ignore")
    tf.config.set_visible_devices([], "GPU")
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )
    return _import_cases()


def _run_case(name: str, kind: str, replicas: int, jit: bool) -> dict[str, Any]:
    import tensorflow as tf

    cases, harness = _start_tensorflow(replicas)
    case = cases.CASES[name]
    options = {"jit_compile": True} if jit else {}
    try:
        expected = harness.train(case, **options)
    except Exception as error:
        if not jit:
            raise
        return {"alone": type(error).__name__}
    devices = [f"/cpu:{index}" for index in range(replicas)]
    try:
        if kind == "stock":
            strategy = tf.distribute.MirroredStrategy(devices)
        else:
            import kdist

            strategy = kdist.MirroredStrategy(devices)
        got = harness.train(case, strategy, **options)
    except Exception as error:
        return {"crash": type(error).__name__}
    return {"wrong": harness.too_large(case, harness.differences(expected, got))}


if __name__ == "__main__":
    main()
