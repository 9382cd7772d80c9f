"""The overhead of draws by the sample's place, for a WideResNet with dropout and augmentation.

    python benchmarks/draws.py            # WRN-16-1, batch 128, two replicas: about two minutes

`draws="by_place"` and `draws="per_replica"` are timed in turn in one process, A B B A ….
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import interleaved
import kdist
import keras
import tensorflow as tf
import training_steps
from kdist.models import WideResNet

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=11)
parser.add_argument("--steps", type=int, default=3, help="training steps per round")
parser.add_argument("--batch", type=int, default=128, help="global batch")
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")


def network(draws):
    """Make and compile the network under a strategy with these draws."""
    strategy = kdist.MirroredStrategy(replicas=2, draws=draws)

    def make():
        inputs = keras.Input((28, 28, 1))
        x = keras.layers.RandomFlip("horizontal")(inputs)
        x = keras.layers.GaussianNoise(0.01)(x)
        body = WideResNet(16, 1, input_shape=(28, 28, 1), classes=10, dropout=0.1)
        return keras.Model(inputs, body(x))

    model = strategy.build(make)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    return model


# The first strategy splits the CPU, before the first dataset.
networks = {draws: network(draws) for draws in ("by_place", "per_replica")}
batch = training_steps.random_batch(args.batch)
candidates = {
    draws: training_steps.steps(model, batch, args.steps) for draws, model in networks.items()
}
interleaved.rounds(candidates, 2)  # warm-up
times = interleaved.rounds(candidates, args.rounds)
ratio = interleaved.ratio(times, "by_place", "per_replica")
print(
    f"WRN-16-1 with dropout, noise and flips, batch {args.batch}, two replicas,"
    f" {args.rounds} rounds"
)
print(f"speed, by place : per replica: {ratio}")
