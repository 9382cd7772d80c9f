"""Cifar10Net compared with `tf.nn.local_response_normalization` in it, and with PyTorch.

    pip install '.[peers]'                      # for PyTorch; without it, that row is left out
    python benchmarks/cifar10_net.py            # batch 128: about three minutes

Training steps of the networks are timed in turn in one process, A B C C B A …. They have the same
weights; the loss of each on the same batch is printed, too. Then come the layer and TensorFlow's
operation by themselves, forward and backward, on what the network's first one gets.
"""

import argparse
import importlib.util
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if importlib.util.find_spec("torch"):
    import torch._dynamo  # noqa: F401 - crashes after TensorFlow

import interleaved
import kdist
import keras
import numpy as np
import tensorflow as tf
import training_steps
from kdist.layers import LocalResponseNormalization
from kdist.models import Cifar10Net

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=11)
parser.add_argument("--steps", type=int, default=5, help="training steps, or passes, per round")
parser.add_argument("--batch", type=int, default=128)
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")
random = np.random.default_rng(0)
images = random.normal(size=(args.batch, 24, 24, 3)).astype("float32")
labels = random.integers(0, 10, args.batch)
batch = tf.data.Dataset.from_tensor_slices((images, labels)).batch(args.batch)
strategy = kdist.MirroredStrategy(replicas=1)


TUTORIALS = {"depth_radius": 4, "bias": 1.0, "alpha": 0.001 / 9, "beta": 0.75}


class StockNormalization(keras.layers.Layer):
    """TensorFlow's operation as a layer, with the tutorial's arguments."""

    def call(self, inputs):
        """Normalize."""
        return tf.nn.local_response_normalization(inputs, **TUTORIALS)


def with_stock_normalization():
    """Make the network with TensorFlow's operation."""

    def replaced(layer):
        if isinstance(layer, LocalResponseNormalization):
            return StockNormalization(name=layer.name)
        return type(layer).from_config(layer.get_config())

    return keras.models.clone_model(Cifar10Net(), clone_function=replaced)


models = {}
for name, make in {"kdist": Cifar10Net, "tf.nn": with_stock_normalization}.items():
    model = models[name] = strategy.build(make)
    with strategy.scope():
        model.compile(
            keras.optimizers.SGD(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=1,
        )
models["tf.nn"].set_weights(models["kdist"].get_weights())
for name, model in models.items():
    print(f"{name}: loss {model.evaluate(batch, verbose=0):.6f}")

candidates = {
    name: training_steps.steps(model, batch, args.steps) for name, model in models.items()
}
if importlib.util.find_spec("torch"):
    import cifar10_net_torch

    candidates["PyTorch"] = cifar10_net_torch.steps(
        models["kdist"].get_weights(), images, labels, args.steps
    )
else:
    print("PyTorch is not installed")

interleaved.rounds(candidates, 2)  # traces them
times = interleaved.rounds(candidates, args.rounds)
for name, seconds in times.items():
    print(f"{name}: {args.steps * args.batch / min(seconds):,.0f} images/s in the fastest round")
for name in [name for name in times if name != "kdist"]:
    ratio = interleaved.ratio(times, "kdist", name)
    print(f"Cifar10Net with kdist's layer : {name} = {ratio}, median (min to max)")


def passes(layer, shape):
    """Return a function that times a layer, forward and backward."""
    inputs, gradients = (tf.constant(random.normal(size=shape), tf.float32) for _ in range(2))

    @tf.function
    def both(inputs, gradients):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
        return tape.gradient(outputs, inputs, gradients)

    def timed_passes():
        began = time.perf_counter()
        for _ in range(args.steps):
            both(inputs, gradients).numpy()
        return time.perf_counter() - began

    return timed_passes


shape = (args.batch, 12, 12, 64)
layers = {"kdist": LocalResponseNormalization(**TUTORIALS), "tf.nn": StockNormalization()}
candidates = {name: passes(layer, shape) for name, layer in layers.items()}
interleaved.rounds(candidates, 2)  # traces them
times = interleaved.rounds(candidates, args.rounds)
ratio = interleaved.ratio(times, "kdist", "tf.nn")
print(f"LocalResponseNormalization : tf.nn on {shape} = {ratio}, median (min to max)")
