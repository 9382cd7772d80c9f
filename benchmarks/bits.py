"""The cost of the same bits: steps with shards beside ordinary ones, on 1, 2 and 4 replicas.

    python -m benchmarks.bits        # WRN-16-1, batch 128, 4 shards: five minutes on two cores

All candidates run with one thread for each operation, as shards do; one ordinary replica also runs
in a process of its own, with all cores for each operation. The candidates are timed in turn, A B B
A …, by the clock and by the processor time of all cores. Other processes disturb the clock more.
The last row shows the cost of smaller batches: an ordinary step for each shard, with its part of
the batch.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import kdist

from .measure import Table, format_ratio, make_parser, run_again, take_turns
from .networks import fit_epoch, make_model, make_wide_resnet, random_batches

ALL_CORES = "1, all cores for each operation"
Turn = Callable[[], tuple[float, float]]
"""Trains steps; returns milliseconds of a step by the clock, and of all cores."""


def main() -> None:
    """Compare the candidates, or run the candidate with all cores."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3, help="training steps per round")
    parser.add_argument("--batch", type=int, default=128, help="global batch")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--all-cores", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.all_cores:
        turn = make_turn(kdist.MirroredStrategy(replicas=1), options.batch, options.steps)
        turn()
        print(json.dumps(turn()))
        return
    candidates: dict[str, Turn] = {}
    for number in sorted(options.replicas, reverse=True):  # the first strategy splits the CPU
        for shards, name in ((options.shards, f"{number} with shards"), (None, f"{number}")):
            strategy = kdist.MirroredStrategy(replicas=number, shards=shards)
            candidates[name] = make_turn(strategy, options.batch, options.steps)
    small = options.batch // options.shards
    pieces = f"1, {options.shards} steps of {small}"
    alone = kdist.MirroredStrategy(replicas=1)
    candidates[pieces] = make_turn(alone, small, options.steps, pieces=options.shards)
    if 1 in options.replicas:
        candidates[ALL_CORES] = lambda: run_again("--all-cores")
    for turn in candidates.values():
        turn()
    turns = take_turns(candidates, options.rounds)
    columns = ["replicas", "ms a step", "ms of cores", "with shards : that", "of cores"]
    table = Table(*columns, file=options.json)
    for number in options.replicas:
        sharded = list(zip(*turns[f"{number} with shards"], strict=True))
        for base in (f"{number}", *([ALL_CORES, pieces] if number == 1 else [])):
            ordinary = list(zip(*turns[base], strict=True))
            medians = [f"{statistics.median(column):.0f}" for column in ordinary]
            ratios = [format_ratio(a, b) for a, b in zip(sharded, ordinary, strict=True)]
            table.add(base, *medians, *ratios)


def make_turn(strategy: kdist.MirroredStrategy, batch: int, steps: int, *, pieces: int = 1) -> Turn:
    """Return a function that trains steps, each of several pieces."""
    network = make_wide_resnet(16, 1)
    model = make_model(network, strategy)
    data = random_batches(network, batch, steps * pieces)

    def turn() -> tuple[float, float]:
        timer = fit_epoch(model, data)
        return 1000 * timer.seconds / steps, 1000 * timer.processor_seconds / steps

    return turn


if __name__ == "__main__":
    main()
