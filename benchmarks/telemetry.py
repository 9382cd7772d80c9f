"""The overhead of TrainingTelemetry: of steps that it measures, and of those that it does not.

    python benchmarks/telemetry.py        # WRN-16-1, batch 128: about five minutes

Processor time, which other programs on the machine change less than seconds. Three candidates take
turns in one process, A B C C B A …: without telemetry, with it but no step due, with every step
measured. The last column is what `every_steps=100`, the default, adds.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
import tensorflow as tf
import training_steps
from kdist.callbacks import TrainingTelemetry
from kdist.models import WideResNet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--steps", type=int, default=3, help="training steps per round")
parser.add_argument("--width", type=int, default=1, help="width of the WRN-16")
parser.add_argument("--batch", type=int, default=128, help="global batch")
parser.add_argument("--replicas", type=int, nargs="*", default=[1, 2])
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")
strategies = {count: kdist.MirroredStrategy(replicas=count) for count in reversed(args.replicas)}
batch = training_steps.random_batch(args.batch)


def network():
    """Make the network."""
    return WideResNet(16, args.width, input_shape=(28, 28, 1), classes=10)


def candidate(strategy, every_steps):
    """Return a function that takes some steps, and returns their processor time per step."""
    model = strategy.build(network)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    if every_steps is not None:
        telemetry = TrainingTelemetry(every_steps=every_steps, verbose=0)
        telemetry.set_model(model)
        telemetry.on_train_begin()
    steps = training_steps.steps(model, batch, args.steps)

    def processor_time():
        begin = time.process_time()
        steps()
        return (time.process_time() - begin) / args.steps

    return processor_time


def spread(values):
    """Format median, minimum and maximum."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


print("Steps without telemetry = 1; processor time, median (min to max) of the rounds")
for count, strategy in strategies.items():
    candidates = {
        "plain": candidate(strategy, None),
        "idle": candidate(strategy, 10**9),
        "measured": candidate(strategy, 1),
    }
    interleaved.rounds(candidates, 2)  # traces them
    times = interleaved.rounds(candidates, args.rounds)
    relative = {
        name: [a / b for a, b in zip(times[name], times["plain"], strict=True)]
        for name in ("idle", "measured")
    }
    idle, measured = map(statistics.median, relative.values())
    least = min(times["idle"]) / min(times["plain"])
    print(
        f"WRN-16-{args.width}, {count} replicas: {statistics.median(times['plain']):.3f} s per"
        f" step; not due {spread(relative['idle'])}, of the fastest rounds {least:.3f}; measured"
        f" {spread(relative['measured'])}: {100 * (0.99 * idle + 0.01 * measured - 1):+.1f} %",
        flush=True,
    )
