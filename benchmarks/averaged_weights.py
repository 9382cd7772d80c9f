"""Averaged compared with raw weights, in the first steps of TensorFlow's CIFAR-10 tutorial.

    python benchmarks/averaged_weights.py --data-dir cifar-10-batches-py      # about ten minutes

`Cifar10Net` is trained with the tutorial's settings: 128 images a step, crops of 24x24, mirrored,
of more or less contrast, SGD at 0.1, and an average of the weights with momentum 0.9999 that begins
small. After every 200 steps both are evaluated on all test images. Prints the table.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import kdist
import keras
import tensorflow as tf
from kdist.data import RandomCrop, RandomHorizontalFlip
from kdist.models import Cifar10Net

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--steps", type=int, default=2000, help="training steps")
parser.add_argument("--every", type=int, default=200, help="steps between evaluations")
parser.add_argument("--data-dir", help="folder of CIFAR-10; default: found or downloaded")
parser.add_argument("--subset", type=int, help="train on this many images only")
args = parser.parse_args()
SIZE = 24


def change_contrast(images, *, seed):
    """Multiply each image's distance from the means of its channels by 0.2 to 1.8."""
    factor = tf.random.stateless_uniform((tf.shape(images)[0], 1, 1, 1), seed, 0.2, 1.8)
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return mean + factor * (images - mean)


keras.utils.set_random_seed(0)
data = kdist.data.cifar10(data_dir=args.data_dir)
if args.subset is not None:
    data = data.subset(args.subset)
train = kdist.data.training_batches(
    data.train_images,
    data.train_labels,
    batch_size=128,
    seed=0,
    augment=[RandomCrop(SIZE), RandomHorizontalFlip(), change_contrast],
    standardization=tf.image.per_image_standardization,
)
test = kdist.data.evaluation_batches(
    kdist.data.center_crop(data.test_images, SIZE),
    data.test_labels,
    batch_size=1000,
    standardization=tf.image.per_image_standardization,
)

strategy = kdist.MirroredStrategy(replicas=1)
model = strategy.build(Cifar10Net)
with strategy.scope():
    sgd = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9999)
    model.compile(
        kdist.optimizers.warm_up_ema(sgd),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )


class EvaluateBoth(keras.callbacks.Callback):
    """Evaluates the weights, then their average."""

    def on_epoch_end(self, epoch, logs=None):
        """Print a line with both accuracies."""
        step = (epoch + 1) * args.every
        accuracies = []
        for callbacks in ([], [keras.callbacks.SwapEMAWeights()]):
            _, accuracy = self.model.evaluate(test, verbose=0, callbacks=callbacks)
            accuracies.append(accuracy)
        raw, averaged = accuracies
        print(f"| {step:,} | {raw:.3f} | {averaged:.3f} | {logs['loss']:.2f} |", flush=True)


print("| step | accuracy, raw weights | averaged weights | training loss |")
print("| --- | --- | --- | --- |", flush=True)
model.fit(
    train.repeat(),
    steps_per_epoch=args.every,
    epochs=args.steps // args.every,
    shuffle=False,
    verbose=0,
    callbacks=[EvaluateBoth()],
)
