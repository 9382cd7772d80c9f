"""What the same bits cost: steps with shards compared with ordinary ones, on 1, 2 and 4 replicas.

    python benchmarks/bits.py        # WRN-16-1, batch 128, 4 shards: five minutes on two cores

All candidates run with one thread for each operation, as shards do; one ordinary replica also in a
process of its own, with all cores for each operation. They are timed in turn, A B B A …
"""

import argparse
import os
import statistics
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
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


def candidate(strategy):
    """Return what times the steps of a strategy."""
    model = strategy.build(network)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    return training_steps.steps(model, training_steps.random_batch(options.batch), options.steps)


if options.threads:
    time = candidate(kdist.MirroredStrategy(replicas=1))
    time()
    print(statistics.median(time() for _ in range(3)))
    sys.exit()

counts = [int(number) for number in options.replicas.split(",")]
strategies = {}
for number in sorted(counts, reverse=True):  # the first one splits the CPU
    strategies[f"{number} with shards"] = kdist.MirroredStrategy(
        replicas=number, shards=options.shards
    )
    strategies[f"{number}"] = kdist.MirroredStrategy(replicas=number)
candidates = {name: candidate(strategy) for name, strategy in strategies.items()}


def all_cores():
    """Return the seconds of one ordinary replica whose operations have all cores."""
    command = [sys.executable, __file__, "--threads", "--batch", str(options.batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


if 1 in counts:
    candidates["1, all cores"] = all_cores
for one in candidates.values():
    one()
times = interleaved.rounds(candidates, options.rounds)
print("| replicas | ms a step | with shards | ratio |\n| --- | --- | --- | --- |")
for number in counts:
    bases = [f"{number}"] + ["1, all cores"] * (number == 1)
    for base in bases:
        ratios = [a / b for a, b in zip(times[f"{number} with shards"], times[base], strict=True)]
        each = [
            1000 * statistics.median(times[name]) / options.steps
            for name in (base, f"{number} with shards")
        ]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {base} | {each[0]:.0f} | {each[1]:.0f} | {spread} |")
