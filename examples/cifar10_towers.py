"""TensorFlow 1's `cifar10_multi_gpu_train.py`, a trainer for several GPUs, step by step, on kdist.

    python examples/cifar10_towers.py --num-gpus 2                    # without GPUs: the CPU in two
    python examples/cifar10_towers.py --max-steps 200 --data-dir cifar-10-batches-py

Prints a line every 10 steps, `step 120, loss = 1.83 (2140.3 examples/sec; 0.060 sec/batch)`, and
after each epoch the accuracy of the averaged weights on all test images ("precision @ 1"). A killed
training continues from its newest checkpoint, which is at most a minute old. A finished training
does nothing more: another `--max-steps` needs another `--train-dir`.

The parts of the old program, and their replacements:

    =========================================  ====================================================
    one tower per GPU, gradients averaged by   `kdist.MirroredStrategy`: the step of one GPU on the
    hand; right if towers' batches are equal   global batch, whatever the replicas' parts of it are
    the loss of the last tower was printed     the loss of the global batch (`PrintThroughput`)
    average of weights and update unordered    the average follows the update (`warm_up_ema`)
    rate 0.1, a tenth every 350 epochs; 1 GPU  the same schedule; `--decay-epochs` for one that is
    never came there in 100,000 steps          reached
    queues, `distorted_inputs`                 `kdist.data.training_batches`: batch k of epoch e
                                               depends on the seed, e and k alone
    `--train_dir` was deleted at the start,    `Checkpoint`: continued from there, exactly; saved
    and saved every 1,000 steps                every minute, too, as an early kill comes before
    cifar10_eval.py, every 300 s               `SwapEMAWeights` and `validation_data`, each epoch
                                               (`kdist evaluate --watch` is for `kdist train`)
    `assert not np.isnan(loss_value)`          `StopAtNonFinite`, which names epoch and step
    `tf.nn.lrn`                                stays, in a layer (`LocalResponseNormalization`)
    histograms every 100 steps: of weights,    `TrainingTelemetry`: of weights and of the global
    one tower's gradients and activations      batch's gradients, with their norms
    =========================================  ====================================================
"""

import argparse
import math
import sys

import kdist
import keras
import tensorflow as tf
from kdist.callbacks import Checkpoint, PrintThroughput, StopAtNonFinite, TrainingTelemetry
from kdist.data import RandomCrop, RandomHorizontalFlip
from kdist.errors import UserError
from kdist.tracking import tracking
from keras import layers
from keras.initializers import Constant, TruncatedNormal

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--max-steps", type=int, default=1_000_000, help="steps of the training")
parser.add_argument("--batch-size", type=int, default=128, help="images per replica and step")
parser.add_argument("--num-gpus", type=int, help="default: every GPU, else the CPU")
parser.add_argument("--data-dir", help="folder of CIFAR-10; default: found or downloaded")
parser.add_argument("--train-dir", default="cifar10_train", help="checkpoints and TensorBoard")
parser.add_argument("--checkpoint-steps", type=int, default=1000, help="steps per checkpoint")
parser.add_argument("--decay-epochs", type=float, default=350.0, help="epochs per decay")
parser.add_argument("--subset", type=int, help="train on this many images only")


class StopAtStep(keras.callbacks.Callback):
    """Ends the training after its last step, which may be within an epoch."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        """Count the steps of the optimizer, also those before a resumed training."""
        super().on_train_batch_end(batch, logs)
        if self.model.optimizer.iterations.numpy() >= self.step:
            self.model.stop_training = True


def change_contrast(images, *, seed):
    """Multiply each image's distance from the means of its channels by 0.2 to 1.8."""
    factor = tf.random.stateless_uniform((tf.shape(images)[0], 1, 1, 1), seed, 0.2, 1.8)
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return mean + factor * (images - mean)


def make_batches(data, batch_size):
    """Return the batches of training and of evaluation: step 1.

    Training images are cropped to 24x24 pixels, mirrored and changed in contrast at random.
    Standardization of each image would undo the tutorial's random brightness. The middle of the
    images is evaluated.
    """
    train = kdist.data.training_batches(
        data.train_images,
        data.train_labels,
        batch_size=batch_size,
        seed=0,
        augment=[RandomCrop(24), RandomHorizontalFlip(), change_contrast],
        standardization=tf.image.per_image_standardization,
    )
    test = kdist.data.evaluation_batches(
        data.test_images[:, 4:28, 4:28],  # the center
        data.test_labels,
        batch_size=1000,
        standardization=tf.image.per_image_standardization,
    )
    return train, test


class LocalResponseNormalization(layers.Layer):
    """Normalizes each pixel's channels by the squares of the four channels on either side."""

    def call(self, inputs):
        """Return the normalized images, computed in float32."""
        outputs = tf.nn.local_response_normalization(
            tf.cast(inputs, tf.float32), depth_radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75
        )
        return tf.cast(outputs, inputs.dtype)


def make_network():
    """Return the tutorial's network, 1,068,298 parameters, similar to AlexNet."""

    def conv(name, *, bias):
        return layers.Conv2D(
            64,
            5,
            padding="same",
            activation="relu",
            kernel_initializer=TruncatedNormal(stddev=0.05),
            bias_initializer=Constant(bias),
            name=name,
        )

    def dense(units, name):
        return layers.Dense(
            units,
            activation="relu",
            kernel_initializer=TruncatedNormal(stddev=0.04),
            bias_initializer=Constant(0.1),
            # The tutorial's factor is 0.004, but its `tf.nn.l2_loss` is half of the sum.
            kernel_regularizer=keras.regularizers.L2(0.002),
            name=name,
        )

    return keras.Sequential(
        [
            keras.Input((24, 24, 3), name="images"),
            conv("conv1", bias=0.0),
            layers.MaxPooling2D(3, strides=2, padding="same", name="pool1"),
            LocalResponseNormalization(name="norm1"),
            conv("conv2", bias=0.1),
            LocalResponseNormalization(name="norm2"),
            layers.MaxPooling2D(3, strides=2, padding="same", name="pool2"),
            layers.Flatten(name="flatten"),
            dense(384, "local3"),
            dense(192, "local4"),
            layers.Dense(10, kernel_initializer=TruncatedNormal(stddev=1 / 192), name="logits"),
        ],
        name="cifar10_net",
    )


def make_model(strategy, steps_per_decay):
    """Return the compiled network: step 2. The rate does not grow with the GPUs."""
    rate = keras.optimizers.schedules.ExponentialDecay(
        0.1, decay_steps=max(1, steps_per_decay), decay_rate=0.1, staircase=True
    )
    model = strategy.build(make_network)
    with strategy.scope():
        sgd = keras.optimizers.SGD(rate, use_ema=True, ema_momentum=0.9999)
        model.compile(
            kdist.optimizers.warm_up_ema(sgd),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return model


def main(args):
    """Train, and return the exit code."""
    strategy = kdist.MirroredStrategy(replicas=args.num_gpus)
    global_batch = args.batch_size * strategy.num_replicas_in_sync
    keras.utils.set_random_seed(0)
    data = kdist.data.cifar10(data_dir=args.data_dir)
    if args.subset is not None:
        data = data.subset(args.subset)
    images = len(data.train_images)
    train, test = make_batches(data, global_batch)
    model = make_model(strategy, int(images / global_batch * args.decay_epochs))

    # 3. Stock `fit`.
    finite = StopAtNonFinite()
    telemetry = TrainingTelemetry(every_steps=100, verbose=0)
    model.fit(
        train,
        validation_data=test,
        epochs=math.ceil(args.max_steps / math.ceil(images / global_batch)),
        shuffle=False,  # the pipeline has shuffled already
        verbose=2,
        callbacks=[
            keras.callbacks.SwapEMAWeights(),
            finite,
            PrintThroughput(every=10),
            telemetry,
            *tracking(
                "tensorboard",
                folder=args.train_dir,
                config=vars(args),
                every_batches=100,
                telemetry=telemetry,
            ),
            StopAtStep(args.max_steps),
            Checkpoint(
                f"{args.train_dir}/checkpoints",
                every_steps=args.checkpoint_steps,
                every_seconds=60,
            ),
        ],
    )
    steps = int(model.optimizer.iterations.numpy())
    if steps < args.max_steps and not finite.found:
        raise UserError(
            f"the training in {args.train_dir} has ended after step {steps}: pass another"
            f" --train-dir for {args.max_steps} steps"
        )
    return 1 if finite.found else 0


if __name__ == "__main__":
    try:
        sys.exit(main(parser.parse_args()))
    except UserError as error:  # a wrong option, or no data
        parser.exit(2, f"{parser.prog}: error: {error}\n")
