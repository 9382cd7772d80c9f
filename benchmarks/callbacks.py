"""What watching costs: BatchNormMonitor at an epoch's end, GradientNoiseScale in a step.

    python benchmarks/callbacks.py        # WRN-16-1, batch 128: about five minutes on two cores

Timed in turn in one process, A B B A …; costs are shares of a training step of the same round.
"""

import argparse
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
import tensorflow as tf
import training_steps
from kdist.bench.workload import timed
from kdist.callbacks import BatchNormMonitor, GradientNoiseScale
from kdist.models import WideResNet

EPOCH_IMAGES = 60_000

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=11)
parser.add_argument("--steps", type=int, default=3, help="training steps a round")
parser.add_argument("--width", type=int, default=1, help="of the WRN-16")
parser.add_argument("--batch", type=int, default=128, help="global batch")
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")
two = kdist.MirroredStrategy(replicas=2)  # the first strategy splits the CPU
one = kdist.MirroredStrategy(replicas=1)
batch = training_steps.random_batch(args.batch)


def network(strategy):
    """The network, compiled."""
    model = strategy.build(lambda: WideResNet(16, args.width, input_shape=(28, 28, 1), classes=10))
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def watched(strategy, every):
    """Steps that GradientNoiseScale measures; its hooks are called here, so that it stays."""
    model = network(strategy)
    noise = GradientNoiseScale(every=every, verbose=0)
    noise.set_model(model)
    noise.on_train_begin()
    return training_steps.steps(model, batch, args.steps)


def costs(contestants):
    """Seconds of the second over those of the first, round by round."""
    interleaved.rounds(contestants, 2)  # traced and warm
    times = list(interleaved.rounds(contestants, args.rounds).values())
    return [after / before for before, after in zip(*times, strict=True)]


def spread(values):
    """Median, least and most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


print(f"WRN-16-{args.width}, global batch {args.batch}, {args.rounds} rounds")
model = network(one)
monitor = BatchNormMonitor(batch=next(batch.as_numpy_iterator()), verbose=0)
monitor.set_model(model)
monitor.on_train_begin()
plain = training_steps.steps(model, batch, args.steps)
monitored = {"step": plain, "monitor": timed(lambda: monitor.on_epoch_end(0, {}))}
steps = [args.steps * ratio for ratio in costs(monitored)]
share = 100 * statistics.median(steps) * args.batch / EPOCH_IMAGES
print(f"BatchNormMonitor: {spread(steps)} steps an epoch, {share:.2f} % of {EPOCH_IMAGES} images")
every_step = costs({"plain": plain, "watched": watched(one, every=1)})
print(f"GradientNoiseScale, one replica: a measured step takes {spread(every_step)} steps")
share = 100 * (statistics.median(every_step) - 1) / 50
print(f"  with every=50, the default: {share:.1f} % of a training")
both = {"plain": training_steps.steps(network(two), batch, args.steps), "watched": watched(two, 1)}
print(f"GradientNoiseScale, two replicas: a step takes {spread(costs(both))} steps")
