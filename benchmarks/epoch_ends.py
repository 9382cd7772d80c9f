"""The idle time of training between epochs, with stock Keras and with kdist.

    python benchmarks/epoch_ends.py        # three minutes on two cores

Freeing a `tf.data` iterator often waits for TensorFlow's tuning thread (see
kdist/_upstream/iterators.py). Both train the same small network on the sample from kdist's
pipeline, with oneDNN, in turn, each run in a separate process. The idle time is that between the
last batch of an epoch and its validation, and between the start of an epoch and its first batch.
The first epoch, which includes tracing, is excluded.
"""

# ruff: noqa: ARG002, ARG005 - as Keras and kdist call them
import argparse
import functools
import json

import interleaved
import separate_process

CANDIDATES = ("stock Keras", "kdist")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--only", choices=CANDIDATES, help="run this one here, and print JSON")
args = parser.parse_args()


def run_here(name):
    """Print total and idle seconds of the epochs after the first, as JSON."""
    import time

    import kdist
    import keras
    from kdist.data import Standardization, evaluation_batches, fashion_mnist, training_batches
    from kdist.models import WideResNet

    class IdleTime(keras.callbacks.Callback):
        """Adds up the idle time between batches."""

        idle = 0.0

        def on_epoch_begin(self, epoch, logs=None):
            self.last = time.perf_counter()
            if epoch == 1:
                self.start, self.idle = self.last, 0.0

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                self.add()

        def on_train_batch_end(self, batch, logs=None):
            self.last = time.perf_counter()

        def on_test_begin(self, logs=None):
            self.add()

        def add(self):
            self.idle += time.perf_counter() - self.last

    data = fashion_mnist(sample=True, announce=lambda line: None)
    standardization = Standardization.of(data.train_images)
    options = {"batch_size": 128, "standardization": standardization}
    train = training_batches(data.train_images, data.train_labels, seed=0, **options)
    test = evaluation_batches(data.test_images, data.test_labels, **options)

    def network():
        return WideResNet(10, 1, input_shape=data.image_shape, classes=10, stem_pool=True)

    model = kdist.MirroredStrategy(replicas=1).build(network) if name == "kdist" else network()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    timer = IdleTime()
    model.fit(
        train,
        validation_data=test,
        epochs=1 + args.epochs,
        shuffle=False,
        callbacks=[timer],
        verbose=0,
    )
    print(json.dumps({"seconds": time.perf_counter() - timer.start, "idle": timer.idle}))


def per_epoch(values):
    """Format median and range per epoch."""
    return interleaved.spread([value / args.epochs for value in values], ".1f")


if args.only:
    run_here(args.only)
else:
    runs_of = {n: functools.partial(separate_process.result, "--only", n) for n in CANDIDATES}
    results = interleaved.rounds(runs_of, args.rounds)
    print("| | seconds per epoch | idle seconds per epoch |")
    print("| --- | --- | --- |")
    for name, runs in results.items():
        columns = (per_epoch([run[key] for run in runs]) for key in ("seconds", "idle"))
        print(f"| {name} | {' | '.join(columns)} |")
