"""kdist's synchronized batch norm against Keras's: the layer, the step, the memory.

    python benchmarks/batch_norm.py                  # WRN-16-1, batch 128: about ten minutes
    python benchmarks/batch_norm.py --width 4 --batch 32 --steps 1

The candidates are timed in turn in one process, A B B A …. Ratios are computed round by round;
above 1, kdist is faster. Peak memory is that of a process that trains only one candidate. Replicas
are logical CPUs that share the machine's cores.
"""

import argparse
import os
import resource
import statistics
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
import separate_process
import tensorflow as tf
import training_steps
from interleaved import timed
from kdist.layers import SyncBatchNormalization
from kdist.models import WideResNet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--steps", type=int, default=4, help="training steps per round")
parser.add_argument("--width", type=int, default=1, help="width of the WRN-16")
parser.add_argument("--batch", type=int, default=128, help="global batch")
parser.add_argument("--memory-of", choices=("keras", "kdist"), help=argparse.SUPPRESS)
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")


def plain(**options):
    """Make Keras's layer for one replica."""
    return keras.layers.BatchNormalization(momentum=0.9, **options)


def synchronized(**options):
    """Make Keras's layer for several replicas."""
    return plain(synchronized=True, **options)


def kdist_layer(**options):
    """Make kdist's layer."""
    return SyncBatchNormalization(momentum=0.9, **options)


def layer_step(layer, shape):
    """Return the forward and backward pass of one layer as a timed function."""
    x, dy = tf.random.normal((2, args.batch, *shape))
    layer.build(x.shape)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return tape.gradient(y, [x, *layer.trainable_variables], dy)

    return timed(lambda: step()[0].numpy())


def training(strategy, batch_norm):
    """Return training steps of the network as a timed function."""
    with strategy.scope():
        model = WideResNet(
            16, args.width, input_shape=(28, 28, 1), classes=10, batch_norm=batch_norm
        )
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    return training_steps.steps(model, training_steps.random_batch(args.batch), args.steps)


def compare(title, candidates):
    """Time Keras and kdist, and print a row of the table."""
    interleaved.rounds(candidates, 2)  # warm-up
    times = interleaved.rounds(candidates, args.rounds)
    milliseconds = [1000 * statistics.median(times[name]) for name in ("keras", "kdist")]
    ratio = interleaved.ratio(times, "kdist", "keras")
    print(f"| {title} | {milliseconds[0]:.1f} | {milliseconds[1]:.1f} | {ratio} |", flush=True)


def peak_mib(name):
    """Return the peak memory of a process that trains one candidate on one replica."""
    return separate_process.result("--memory-of", name)


one = kdist.MirroredStrategy(replicas=1)
if args.memory_of:
    training(one, plain if args.memory_of == "keras" else kdist_layer)()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    sys.exit()
two = kdist.MirroredStrategy(replicas=2)

print(f"WRN-16-{args.width}, global batch {args.batch}, {args.rounds} rounds, median")
print("| | Keras, ms | kdist, ms | kdist : Keras (min to max) |")
print("| --- | --- | --- | --- |")
w = args.width
for shape in dict.fromkeys([(28, 28, 16), (28, 28, 16 * w), (14, 14, 32 * w), (7, 7, 64 * w)]):
    layers = {"keras": layer_step(plain(), shape), "kdist": layer_step(kdist_layer(), shape)}
    compare(f"layer on {'x'.join(map(str, shape))}, one replica", layers)
stock = tf.distribute.get_strategy()
compare(
    f"{args.steps} training steps, one replica; Keras without strategy",
    {"keras": training(stock, plain), "kdist": training(one, kdist_layer)},
)
compare(
    f"{args.steps} training steps, two replicas, both under kdist's strategy",
    {"keras": training(two, synchronized), "kdist": training(two, kdist_layer)},
)
memory = [peak_mib(name) for name in ("keras", "kdist")]
print(f"| peak memory of training, MiB | {memory[0]:.0f} | {memory[1]:.0f} | |")
