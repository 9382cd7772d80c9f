"""What the same bits cost: steps with shards compared with ordinary ones, on 1, 2 and 4 replicas.

    python benchmarks/bits.py        # WRN-16-1, batch 128, 4 shards: five minutes on two cores

All candidates run with one thread for each operation, as shards do; one ordinary replica also in a
process of its own, with all cores for each operation. They are timed in turn, A B B A …, by the
clock and by the processor time of all cores, which other processes disturb less. The last row is as
many ordinary steps as there are shards, each with the batch of one: what smaller batches cost.
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
import separate_process
import training_steps
from kdist.models import WideResNet

parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--steps", type=int, default=3, help="training steps per round")
parser.add_argument("--batch", type=int, default=128, help="global batch")
parser.add_argument("--shards", type=int, default=4)
parser.add_argument("--replicas", default="1,2,4")
parser.add_argument("--threads", action="store_true", help="one ordinary replica, all cores")
options = parser.parse_args()


def network():
    """Return a WRN-16-1."""
    return WideResNet(16, 1, input_shape=(28, 28, 1), classes=10)


def candidate(strategy, batch, times=1):
    """Return what measures steps: milliseconds by the clock, and of all cores."""
    model = strategy.build(network)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    measured = training_steps.steps(
        model, training_steps.random_batch(batch), times * options.steps
    )

    def turn():
        before = time.process_time()
        seconds = measured()
        # `fit` takes one step more than are timed.
        each = (time.process_time() - before) / (times * options.steps + 1) * times
        return 1000 * seconds / options.steps, 1000 * each

    return turn


if options.threads:
    turn = candidate(kdist.MirroredStrategy(replicas=1), options.batch)
    turn()
    print(json.dumps(turn()))
    sys.exit()

counts = [int(number) for number in options.replicas.split(",")]
candidates = {}
for number in sorted(counts, reverse=True):  # the first one splits the CPU
    shards = kdist.MirroredStrategy(replicas=number, shards=options.shards)
    candidates[f"{number} with shards"] = candidate(shards, options.batch)
    candidates[f"{number}"] = candidate(kdist.MirroredStrategy(replicas=number), options.batch)
small = options.batch // options.shards
pieces = f"1, {options.shards} steps of {small}"
alone = kdist.MirroredStrategy(replicas=1)
candidates[pieces] = candidate(alone, small, times=options.shards)


def all_cores():
    """Return what one ordinary replica takes whose operations have all cores."""
    return separate_process.result("--threads")


if 1 in counts:
    candidates["1, all cores"] = all_cores
for one in candidates.values():
    one()
measured = interleaved.rounds(candidates, options.rounds)


def medians(name):
    """Format the milliseconds of a candidate."""
    return " | ".join(
        f"{statistics.median(column):.0f}" for column in zip(*measured[name], strict=True)
    )


def ratios(name, base):
    """Format two ratios: of the clock, and of processor time."""
    texts = []
    for kind in range(2):
        pairs = zip(measured[name], measured[base], strict=True)
        each = [a[kind] / b[kind] for a, b in pairs]
        texts.append(interleaved.spread(each))
    return " | ".join(texts)


print("| replicas | ms a step | ms of cores | with shards : that | of cores |")
print("| --- | --- | --- | --- | --- |")
for number in counts:
    others = ["1, all cores", pieces] if number == 1 else []
    for base in (f"{number}", *others):
        print(f"| {base} | {medians(base)} | {ratios(f'{number} with shards', base)} |")
