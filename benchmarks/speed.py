"""The speed of kdist beside stock Keras and PyTorch.

    python benchmarks/speed.py                              # WRN-16-1, batch 128: ten minutes
    python benchmarks/speed.py --width 4 --steps 1
    python benchmarks/speed.py --batch 8 16 32 64 128 256 512 700 --rounds 3
    python benchmarks/speed.py --network transformer --batch 64
    python benchmarks/speed.py --task predict --batch 256
    python benchmarks/speed.py --candidates kdist "kdist, bfloat16"
    python benchmarks/speed.py --replicas 8 --batch 64 --steps 1 --rounds 1      # the first step

Each candidate is a process of its own. It traces its step and warms up, then they take turns; every
other round is in reverse order (A B C C B A …). Ratios are those of a round: median (min to max);
above 1, the first candidate is faster. The first turn is timed from the start of the process.
Several replicas are GPUs, or logical CPUs that share the cores. The matrix product tells how fast
the machine is; utilization is the share of its arithmetic that a network reaches. Stock TensorFlow
decides itself whether to use oneDNN: set TF_ENABLE_ONEDNN_OPTS=1 to use it everywhere. PyTorch is
left out if it is not installed: `pip install '.[peers]'`.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

NETWORKS = ("wide_resnet", "transformer", "lstm", "table")
STOCK, MIRRORED = "stock Keras", "stock MirroredStrategy"
ONE, NO_NORM, BFLOAT16 = "kdist", "kdist, no batch norm", "kdist, bfloat16"
EAGER, COMPILED, PRODUCT = "PyTorch, eager", "PyTorch, compiled", "matrix product"
# All processes are there at once, so none may reserve the memory of a GPU.
ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}


def main() -> None:
    """Compare the candidates, or be one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="wide_resnet")
    parser.add_argument("--depth", type=int, default=16, help="of the WideResNet")
    parser.add_argument("--width", type=int, default=1, help="of the WideResNet")
    parser.add_argument("--batch", type=int, nargs="+", default=[128], help="global batches")
    parser.add_argument("--steps", type=int, default=6, help="steps of a turn")
    parser.add_argument("--task", choices=("fit", "evaluate", "predict"), default="fit")
    parser.add_argument("--replicas", type=int, default=2, help="of the candidates on several")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--candidates", nargs="+", help="only these")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        be(args.only, args)
        return
    usual = [name for name in candidates(args) if name != BFLOAT16]  # slow where it is emulated
    chosen = [name for name in candidates(args) if name in (args.candidates or usual)]
    if not chosen:
        parser.error(f"--candidates has none of {', '.join(candidates(args))}")
    network = f"WRN-{args.depth}-{args.width}" if args.network == "wide_resnet" else args.network
    for batch in args.batch:
        said = compare(chosen, batch, args.rounds)
        print(table(f"{network}, {args.task}, batch {batch}", args, said), flush=True)


def candidates(args: argparse.Namespace) -> list[str]:
    """Return the names of the candidates that can run."""
    names = [STOCK, MIRRORED, ONE, several(args)]
    if args.network == "wide_resnet" and args.task == "fit":
        names += [NO_NORM, BFLOAT16]
        names += [EAGER, COMPILED] if importlib.util.find_spec("torch") else []
    return [*names, PRODUCT]


def several(args: argparse.Namespace) -> str:
    """Return the name of kdist's candidate on several replicas."""
    return f"kdist, {args.replicas} replicas"


def compare(names: list[str], batch: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Let candidates take turns; return what each has said, of its first step and each turn."""
    said: dict[str, list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as stack:
        workers = {}
        for name in names:  # one after the other, as they trace and warm up here
            begin = time.perf_counter()
            workers[name] = stack.enter_context(process(name, batch))
            said[name] = [answer(workers[name])]
            said[name][0]["first"] = time.perf_counter() - begin
            answer(workers[name])  # warmed up
        for turn in range(rounds):
            for name in names[:: -1 if turn % 2 else 1]:
                print("", file=workers[name].stdin, flush=True)
                said[name].append(answer(workers[name]))
    return said


@contextlib.contextmanager
def process(name: str, batch: int) -> Iterator["subprocess.Popen[str]"]:
    """Start a candidate, and end it after the `with` block."""
    command = [sys.executable, *sys.argv, "--only", name, "--batch", str(batch)]
    worker = subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def answer(worker: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return what a candidate says next."""
    line = worker.stdout.readline() if worker.stdout else ""
    if not line:
        raise SystemExit(f"a candidate ended with exit code {worker.wait()}: its error is above")
    found: dict[str, Any] = json.loads(line)
    return found


def be(name: str, args: argparse.Namespace) -> None:
    """Be a candidate: say a line of JSON after the first step, when warm, and after each turn."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not mixed with these lines

    def say(**values: Any) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**values, "peak_mib": peak}), file=channel, flush=True)

    turn, facts = work(name, args)
    turn()
    say(**facts)
    turn()
    say()
    for _ in sys.stdin:
        say(seconds=turn())


def work(name: str, args: argparse.Namespace) -> tuple[Callable[[], float], dict[str, Any]]:
    """Return what a candidate does in a turn, and how much that is; imports its libraries."""
    batch, steps = args.batch[0], args.steps
    if name in (EAGER, COMPILED):
        import wide_resnet_torch

        compiled = name == COMPILED
        return wide_resnet_torch.training(
            args.depth, args.width, batch=batch, steps=steps, compiled=compiled
        ), {"samples": batch * steps}
    if name not in (STOCK, MIRRORED):  # these have the kernels that TensorFlow chooses
        import kdist

        kdist.prepare_tensorflow()
    import keras_candidates

    if name == PRODUCT:
        return keras_candidates.matrix_product()
    return keras_candidates.keras_turn(
        keras_candidates.network(
            args.network, depth=args.depth, width=args.width, batch_norm=name != NO_NORM
        ),
        is_stock=name in (STOCK, MIRRORED),
        replicas=args.replicas if name in (MIRRORED, several(args)) else 1,
        batch=batch,
        steps=steps,
        task=args.task,
        precision="mixed_bfloat16" if name == BFLOAT16 else "float32",
    )


def table(title: str, args: argparse.Namespace, said: dict[str, list[dict[str, Any]]]) -> str:
    """Return speeds and ratios as Markdown."""
    lines = [f"**{title}**", ""]
    lines += [
        "| | samples/s | utilization | memory, MiB | first turn, s |",
        "| --- | --- | --- | --- | --- |",
    ]
    medians = {
        name: statistics.median(one["seconds"] for one in turns)
        for name, (_, *turns) in said.items()
    }
    done = {name: facts for name, (facts, *_) in said.items()}
    peak = done[PRODUCT]["operations"] / medians[PRODUCT] if PRODUCT in said else math.nan
    for name, seconds in medians.items():
        operations = done[name].get("operations", math.nan) / seconds
        speed = f"{done[name].get('samples', 0) / seconds:,.0f}"
        if name == PRODUCT:
            speed = f"{operations / 1e9:,.0f} GFLOP/s"
        share = "" if math.isnan(operations / peak) else f"{operations / peak:.0%}"
        memory = said[name][-1]["peak_mib"]
        lines.append(f"| {name} | {speed} | {share} | {memory:,.0f} | {done[name]['first']:.1f} |")
    lines += ["", "| ratio | of speeds | of memory | of first turns |", "| --- | --- | --- | --- |"]
    torch = min(
        (name for name in (EAGER, COMPILED) if name in said), key=medians.get, default=EAGER
    )
    more = several(args)
    pairs = [(ONE, STOCK), (more, MIRRORED), (more, ONE), (ONE, torch), (ONE, NO_NORM)]
    for name, base in [*pairs, (BFLOAT16, ONE)]:
        if {name, base} <= said.keys():
            speeds = [
                b["seconds"] / a["seconds"]
                for a, b in zip(said[name][1:], said[base][1:], strict=True)
            ]
            memory = said[name][-1]["peak_mib"] / said[base][-1]["peak_mib"]
            first = done[name]["first"] / done[base]["first"]
            lines.append(
                f"| {name} : {base} | {statistics.median(speeds):.2f} ({min(speeds):.2f} to"
                f" {max(speeds):.2f}) | {memory:.2f} | {first:.2f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
