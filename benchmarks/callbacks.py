"""The overhead of monitoring: BatchNormMonitor per epoch, the others per step.

    python benchmarks/callbacks.py        # WRN-16-1, batch 128: about five minutes on two cores

The candidates are timed in turn in one process, A B B A …. Overheads are relative to a training
step of the same round.
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
from interleaved import spread, timed
from kdist.callbacks import BatchNormMonitor, StopAtNonFinite
from kdist.models import WideResNet

EPOCH_IMAGES = 60_000
TINY_STEPS = 1000

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=11)
parser.add_argument("--steps", type=int, default=3, help="training steps per round")
parser.add_argument("--width", type=int, default=1, help="width of the WRN-16")
parser.add_argument("--batch", type=int, default=128, help="global batch")
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")
one = kdist.MirroredStrategy(replicas=1)
batch = training_steps.random_batch(args.batch)


def network(strategy):
    """Make and compile the network."""
    model = strategy.build(lambda: WideResNet(16, args.width, input_shape=(28, 28, 1), classes=10))
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def fit_of_tiny_steps(*callbacks):
    """Return a candidate: an epoch of short steps, of which a wait would be a large share."""
    model = one.build(lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]))
    with one.scope():
        model.compile("sgd", "mse", steps_per_execution=1)
    data = tf.data.Dataset.from_tensors((tf.zeros((8, 8)), tf.zeros((8, 1)))).repeat(TINY_STEPS)
    return timed(lambda: model.fit(data, verbose=0, callbacks=list(callbacks)))


def relative_times(candidates):
    """Return the seconds of the second candidate over those of the first, round by round."""
    interleaved.rounds(candidates, 2)  # warm-up
    times = list(interleaved.rounds(candidates, args.rounds).values())
    return [after / before for before, after in zip(*times, strict=True)]


print(f"WRN-16-{args.width}, global batch {args.batch}, {args.rounds} rounds")
model = network(one)
monitor = BatchNormMonitor(batch=next(batch.as_numpy_iterator()), verbose=0)
monitor.set_model(model)
monitor.on_train_begin()
plain = training_steps.steps(model, batch, args.steps)
monitored = {"step": plain, "monitor": timed(lambda: monitor.on_epoch_end(0, {}))}
steps = [args.steps * ratio for ratio in relative_times(monitored)]
share = 100 * statistics.median(steps) * args.batch / EPOCH_IMAGES
print(f"BatchNormMonitor: {spread(steps)} steps per epoch, {share:.2f} % of {EPOCH_IMAGES} images")
tiny = {"plain": fit_of_tiny_steps(), "watched": fit_of_tiny_steps(StopAtNonFinite(verbose=0))}
print(f"StopAtNonFinite: a tiny step takes {spread(relative_times(tiny))} steps")
