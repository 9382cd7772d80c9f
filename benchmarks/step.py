"""What exactness costs: steps a second and trace time of kdist against stock Keras, interleaved.

    python benchmarks/step.py                 # WRN-16-1, batch 128: about five minutes on two cores
    python benchmarks/step.py --rounds 3 --steps 2 --depth 10

All contestants train the same network on the same batches in one process, in turn (A B C D D C B A
…), so that the machine's drift hits all alike. A ratio is taken round by round; above 1, the first
of the two is faster. Replicas are logical CPUs that share the machine's cores.
"""

import argparse
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import keras
import tensorflow as tf
import training_steps

import kdist
from kdist.models import WideResNet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--steps", type=int, default=4, help="steps a round")
parser.add_argument("--depth", type=int, default=16)
parser.add_argument("--width", type=int, default=1)
parser.add_argument("--batch", type=int, default=128, help="global batch")
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")
two = kdist.MirroredStrategy(replicas=2)  # the first strategy splits the CPU
STRATEGIES = {
    "stock Keras, no strategy": None,
    "kdist, one replica": kdist.MirroredStrategy(replicas=1),
    "stock MirroredStrategy, two replicas": tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], tf.distribute.ReductionToOneDevice()
    ),
    "kdist, two replicas": two,
}
PAIRS = [
    ("kdist, one replica", "stock Keras, no strategy"),
    ("kdist, two replicas", "stock MirroredStrategy, two replicas"),
]


def synchronized(**options):
    """Keras's own synchronized layer for all, so that only the step differs."""
    return keras.layers.BatchNormalization(momentum=0.9, synchronized=True, **options)


def model_under(strategy):
    """The network, compiled, made in the scope of `strategy`."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = WideResNet(
            args.depth,
            args.width,
            input_shape=(28, 28, 1),
            classes=10,
            batch_norm=synchronized,
        )
        model.compile(
            keras.optimizers.SGD(0.01, momentum=0.9),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
        )
    return model


batch = training_steps.random_batch(args.batch)
models = {name: model_under(strategy) for name, strategy in STRATEGIES.items()}
first = {
    name: interleaved.timed(lambda model=model: model.fit(batch, verbose=0, shuffle=False))()
    for name, model in models.items()
}
contestants = {
    name: training_steps.steps(model, batch, args.steps) for name, model in models.items()
}
interleaved.rounds(contestants, 1)
times = interleaved.rounds(contestants, args.rounds)

print(f"WRN-{args.depth}-{args.width}, global batch {args.batch}, {args.rounds} rounds")
for name, values in times.items():
    rate = args.steps * args.batch / statistics.median(values)
    print(f"{name:38} {rate:8.1f} images/s   first step {first[name]:5.1f} s")
for name, base in PAIRS:
    print(f"{name} : {base} = {interleaved.ratio(times, name, base)}")
    print(f"  first step, with tracing: {first[name] / first[base]:.2f} times as long")
