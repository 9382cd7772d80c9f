"""Seconds that training stands still between epochs: stock Keras against kdist.

    python benchmarks/epoch_ends.py        # three minutes on two cores

Whoever frees a `tf.data` iterator often waits for TensorFlow's tuning thread (see
kdist/_upstream/iterators.py). Both train the same small network on the sample from kdist's
pipeline, with oneDNN, each run in a process of its own, in turn. What counts is the time between
the last batch of an epoch and its validation, and between the start of an epoch and its first
batch; the first epoch, which traces, is left out.
"""

# ruff: noqa: ARG002, ARG005 - as Keras and kdist call them
import argparse
import functools
import json
import statistics

import interleaved
import own_process

CONTESTANTS = ("stock Keras", "kdist")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--only", choices=CONTESTANTS, help="run this one here, and print JSON")
args = parser.parse_args()


def run_here(name):
    """Seconds of the epochs after the first, and those of them that stood still, as JSON."""
    import time

    import kdist
    import keras
    from kdist.data import Standardization, evaluation_batches, fashion_mnist, training_batches
    from kdist.models import WideResNet

    class Waits(keras.callbacks.Callback):
        """Adds up the time that passes without a batch."""

        waited = 0.0

        def on_epoch_begin(self, epoch, logs=None):
            self.last = time.perf_counter()
            if epoch == 1:
                self.start, self.waited = self.last, 0.0

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 0:
                self.waits()

        def on_train_batch_end(self, batch, logs=None):
            self.last = time.perf_counter()

        def on_test_begin(self, logs=None):
            self.waits()

        def waits(self):
            self.waited += time.perf_counter() - self.last

    data = fashion_mnist(sample=True, announce=lambda line: None)
    standardization = Standardization.of(data.train_images)
    options = {"batch_size": 128, "standardization": standardization}
    train = training_batches(data.train_images, data.train_labels, seed=0, **options)
    test = evaluation_batches(data.test_images, data.test_labels, **options)

    def network():
        return WideResNet(10, 1, input_shape=data.image_shape, classes=10, stem_pool=True)

    model = kdist.MirroredStrategy(replicas=1).build(network) if name == "kdist" else network()
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    waits = Waits()
    model.fit(
        train,
        validation_data=test,
        epochs=1 + args.epochs,
        shuffle=False,
        callbacks=[waits],
        verbose=0,
    )
    print(json.dumps({"seconds": time.perf_counter() - waits.start, "waited": waits.waited}))


def told(values):
    """Median and range, an epoch."""
    values = [value / args.epochs for value in values]
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if args.only:
    run_here(args.only)
else:
    runs_of = {n: functools.partial(own_process.result, "--only", n) for n in CONTESTANTS}
    results = interleaved.rounds(runs_of, args.rounds)
    print("| | seconds an epoch | of them standing still |")
    print("| --- | --- | --- |")
    for name, runs in results.items():
        columns = (told([run[key] for run in runs]) for key in ("seconds", "waited"))
        print(f"| {name} | {' | '.join(columns)} |")
