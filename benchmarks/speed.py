"""The speed of kdist beside stock Keras and PyTorch.

    python -m benchmarks.speed                              # WRN-16-1, batch 128: ten minutes
    python -m benchmarks.speed --width 4 --steps 1
    python -m benchmarks.speed --batch 8 16 32 64 128 256 512 700 --rounds 3
    python -m benchmarks.speed --network transformer --batch 64
    python -m benchmarks.speed --task predict --batch 256
    python -m benchmarks.speed --candidates kdist "kdist, bfloat16"
    python -m benchmarks.speed --candidates kdist "kdist, 4 shards"
    python -m benchmarks.speed --batch 64 --candidates "kdist, 2 replicas" "kdist, 2 workers"

Each candidate is a process of its own, or two workers. After each candidate has traced its step
and warmed up, candidates take turns; every other round is in reverse order (A B C C B A …). Ratios
are computed by round: median (min to max); above 1, the first candidate is faster. The first turn
is timed from the start of the process. Several replicas are GPUs, or logical CPUs that share the
cores; workers divide the cores. The matrix product measures the machine's speed; utilization is the
share of it that a network reaches. Stock TensorFlow decides itself whether to use oneDNN: set
TF_ENABLE_ONEDNN_OPTS=1 to use it everywhere. PyTorch is included if it is installed: `pip install
'.[peers]'`.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import math
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .measure import ROOT, Table, format_ratio, make_parser, make_timer, module_command, take_turns

NETWORKS = ("wide_resnet", "transformer", "lstm", "table")
STOCK, MIRRORED = "stock Keras", "stock MirroredStrategy"
ONE, WORKERS, SHARDS = "kdist", "kdist, 2 workers", "kdist, 4 shards"
NO_NORM, BFLOAT16 = "kdist, no batch norm", "kdist, bfloat16"
EAGER, COMPILED, PRODUCT = "PyTorch, eager", "PyTorch, compiled", "matrix product"
NOT_USUAL = (WORKERS, SHARDS, BFLOAT16)  # bfloat16 is slow where it is emulated
# All processes run at the same time, so no process may reserve the memory of a GPU.
ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}


def main() -> None:
    """Compare the candidates, or run a single candidate."""
    parser = make_parser(__doc__)
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
        run_candidate(args.only, args)
        return
    known = list_candidates(args)
    usual = [name for name in known if name not in NOT_USUAL]
    candidates = [name for name in known if name in (args.candidates or usual)]
    if not candidates:
        parser.error(f"--candidates has none of {', '.join(known)}")
    network = f"WRN-{args.depth}-{args.width}" if args.network == "wide_resnet" else args.network
    for batch in args.batch:
        facts, turns = compare(candidates, batch, args.rounds)
        title = f"{network}, {args.task}, batch {batch}"
        print_speeds(facts, turns, title, args.json)
        print_ratios(facts, turns, several_name(args), f"{title}: ratios", args.json)


def list_candidates(args: argparse.Namespace) -> list[str]:
    """Return the names of the candidates that can run."""
    names = [STOCK, MIRRORED, ONE, several_name(args)]
    if args.task == "fit":
        names += [WORKERS, SHARDS]
    if args.network == "wide_resnet" and args.task == "fit":
        names += [NO_NORM, BFLOAT16]
        names += [EAGER, COMPILED] if importlib.util.find_spec("torch") else []
    return [*names, PRODUCT]


def several_name(args: argparse.Namespace) -> str:
    """Return the name of kdist's candidate on several replicas."""
    return f"kdist, {args.replicas} replicas"


# The process that compares

Facts = dict[str, dict[str, Any]]
Turns = dict[str, list[dict[str, Any]]]


def compare(names: list[str], batch: int, rounds: int) -> tuple[Facts, Turns]:
    """Let candidates take turns; return the facts of each first turn, and the turns."""
    facts: Facts = {}
    with contextlib.ExitStack() as stack:
        candidates = {}
        for name in names:  # in sequence: each candidate traces and warms up
            start = time.perf_counter()
            candidate = stack.enter_context(Candidate(name, batch))
            facts[name] = candidate.answer() | {"first": time.perf_counter() - start}
            candidate.answer()  # warmed up
            candidates[name] = candidate.take_turn
        return facts, take_turns(candidates, rounds)


class Candidate:
    """The process of a candidate, or its two workers; a process waits for its turns."""

    def __init__(self, name: str, batch: int) -> None:
        command = module_command("--only", name, "--batch", str(batch))
        configurations = make_worker_configurations(2) if name == WORKERS else [{}]
        self._processes = [
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **ENVIRONMENT, **own},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for own in configurations
        ]

    def __enter__(self) -> "Candidate":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def answer(self) -> dict[str, Any]:
        """Wait until all processes have answered; return the first answer."""
        answers = []
        for process in self._processes:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                code = process.wait()
                raise SystemExit(f"a candidate ended with exit code {code}: its error is above")
            answers.append(json.loads(line))
        found: dict[str, Any] = answers[0]
        return found

    def take_turn(self) -> dict[str, Any]:
        """Let the candidate run an epoch; return its seconds and memory."""
        for process in self._processes:
            print("", file=process.stdin, flush=True)
        return self.answer()


def make_worker_configurations(count: int) -> list[dict[str, str]]:
    """Return the environment of each worker of a cluster on this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in sockets]
    for listener in sockets:
        listener.close()
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(count)
    ]


def print_speeds(facts: Facts, turns: Turns, title: str, file: Path | None) -> None:
    """Print samples per second, the machine's utilization, memory, and the first turn."""
    seconds = {name: statistics.median(turn["seconds"] for turn in turns[name]) for name in turns}
    peak = facts[PRODUCT]["operations"] / seconds[PRODUCT] if PRODUCT in facts else math.nan
    columns = ["candidate", "samples/s", "utilization", "memory, MiB", "first turn, s"]
    table = Table(*columns, title=title, file=file)
    for name, candidate_facts in facts.items():
        operations = candidate_facts.get("operations", math.nan) / seconds[name]
        speed = f"{candidate_facts.get('samples', 0) / seconds[name]:,.0f}"
        if name == PRODUCT:
            speed = f"{operations / 1e9:,.0f} GFLOP/s"
        share = "" if math.isnan(operations / peak) else f"{operations / peak:.0%}"
        memory = turns[name][-1]["peak_mib"]
        table.add(name, speed, share, f"{memory:,.0f}", f"{candidate_facts['first']:.1f}")
    print()


def print_ratios(
    facts: Facts, turns: Turns, several_replicas: str, title: str, file: Path | None
) -> None:
    """Print the ratios of pairs of candidates."""
    seconds = {name: [turn["seconds"] for turn in turns[name]] for name in turns}
    torch = min(
        (name for name in (EAGER, COMPILED) if name in turns),
        key=lambda name: statistics.median(seconds[name]),
        default=EAGER,
    )
    pairs = [
        (ONE, STOCK),
        (several_replicas, MIRRORED),
        (several_replicas, ONE),
        (ONE, torch),
        (ONE, NO_NORM),
        (SHARDS, ONE),
    ]
    table = Table("ratio", "of speeds", "of memory", "of first turns", title=title, file=file)
    for name, base in [*pairs, (BFLOAT16, ONE), (WORKERS, several_replicas)]:
        if {name, base} <= turns.keys():
            memory = turns[name][-1]["peak_mib"] / turns[base][-1]["peak_mib"]
            first = facts[name]["first"] / facts[base]["first"]
            speeds = format_ratio(seconds[base], seconds[name])
            table.add(f"{name} : {base}", speeds, f"{memory:.2f}", f"{first:.2f}")
    print()


# The process of a candidate


def run_candidate(name: str, args: argparse.Namespace) -> None:
    """Print a line of JSON after the first turn, when warm, and after each turn."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries is not mixed with these lines

    def answer(**values: Any) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**values, "peak_mib": peak}), file=channel, flush=True)

    turn, facts = make_turn(name, args)
    turn()
    answer(**facts)
    turn()
    answer()
    for _ in sys.stdin:
        answer(seconds=turn())
    os._exit(0)  # TensorFlow would wait for the other workers


def make_turn(name: str, args: argparse.Namespace) -> tuple[Callable[[], float], dict[str, Any]]:
    """Return a candidate's turn and the work in it; imports its libraries."""
    batch, steps = args.batch[0], args.steps
    if name in (EAGER, COMPILED):
        from . import torch_wide_resnet

        return torch_wide_resnet.training(
            args.depth, args.width, batch=batch, steps=steps, compiled=name == COMPILED
        ), {"samples": batch * steps}
    if name not in (STOCK, MIRRORED):  # stock candidates have TensorFlow's default kernels
        import kdist

        kdist.prepare_tensorflow()
    if name == PRODUCT:
        return make_matrix_product()
    return make_keras_turn(name, args)


def make_keras_turn(
    name: str, args: argparse.Namespace
) -> tuple[Callable[[], float], dict[str, Any]]:
    """Return a function that runs an epoch and returns its seconds, and the work of an epoch."""
    import kdist
    import keras
    from kdist.strategies.steps_per_execution import training_flops

    from . import networks

    if name == BFLOAT16:
        keras.config.set_dtype_policy("mixed_bfloat16")
    if name == WORKERS:
        split_cores()
    strategies: dict[str, Callable[[], Any]] = {
        STOCK: lambda: None,
        MIRRORED: functools.partial(make_stock_strategy, args.replicas),
        WORKERS: lambda: kdist.MultiWorkerMirroredStrategy(replicas=1),
        SHARDS: lambda: kdist.MirroredStrategy(replicas=1, shards=4),
        several_name(args): lambda: kdist.MirroredStrategy(replicas=args.replicas),
    }
    strategy = strategies.get(name, lambda: kdist.MirroredStrategy(replicas=1))()
    network = make_named_network(args, batch_norm=name != NO_NORM)
    steps_per_execution: int | str = 1
    if network.has_short_steps:
        steps_per_execution = args.steps if name in (STOCK, MIRRORED) else "auto"
    model = networks.make_model(network, strategy, steps_per_execution=steps_per_execution)
    data = networks.random_batches(network, args.batch[0], args.steps)
    turns = {
        "fit": lambda: networks.fit_epoch(model, data),
        "evaluate": make_timer(lambda: model.evaluate(data, verbose=0)),
        "predict": make_timer(lambda: model.predict(data, verbose=0)),
    }
    samples = args.batch[0] * args.steps
    flops = training_flops(model) if args.task == "fit" else math.nan
    return turns[args.task], {"samples": samples, "operations": samples * flops}


def make_named_network(args: argparse.Namespace, *, batch_norm: bool) -> Any:
    """Return the network of `--network`."""
    from . import networks

    texts = {"words": networks.WORDS, "tokens": networks.TOKENS}
    if args.network == "transformer":
        return networks.make_transformer(**texts, width=128, heads=4, layers=4, has_positions=True)
    if args.network == "lstm":
        return networks.make_lstm(**texts, width=64, dropout=0.1)
    if args.network == "table":
        return networks.make_dense_network()
    options = {} if batch_norm else {"batch_norm": networks.without_batch_norm}
    return networks.make_wide_resnet(args.depth, args.width, **options)


def split_cores() -> None:
    """Take this worker's part of the cores, as `kdist launch` divides them."""
    config = json.loads(os.environ["TF_CONFIG"])
    cores = sorted(os.sched_getaffinity(0))
    part = cores[config["task"]["index"] :: len(config["cluster"]["worker"])]
    os.sched_setaffinity(0, part or cores)


def make_stock_strategy(replicas: int) -> Any:
    """Make a `tf.distribute.MirroredStrategy` of GPUs, or of the CPU's logical devices."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy([f"gpu:{index}" for index in range(replicas)])
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * replicas
    tf.config.set_logical_device_configuration(cpu, parts)
    # TensorFlow's collectives do not work on logical CPUs.
    sums = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy([f"cpu:{index}" for index in range(replicas)], sums)


def make_matrix_product() -> tuple[Callable[[], float], dict[str, Any]]:
    """Return a turn of float32 products of square matrices, the upper limit for networks."""
    import tensorflow as tf

    side, count = (8192, 8) if tf.config.list_physical_devices("GPU") else (2048, 4)
    a = tf.random.stateless_uniform((side, side), (0, 0)) / side

    @tf.function(autograph=False)
    def products() -> Any:
        b = a
        for _ in range(count):
            b = tf.matmul(a, b)
        return tf.reduce_sum(b)

    return make_timer(lambda: products().numpy()), {"operations": count * 2.0 * side**3}


if __name__ == "__main__":
    main()
