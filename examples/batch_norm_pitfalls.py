"""Two common questions about batch norm on several GPUs, reproduced in Keras 3 and answered.

    python examples/batch_norm_pitfalls.py --plot pitfalls.html

1. Some of four ways to keep the moving averages give wrong results with two GPUs: which ways, and
   why?
2. The losses in training and inference drift apart if only one replica's ("tower's") update runs.

Trains a small network each way. Prints the test accuracy of the saved model by epoch; the accuracy
after `kdist.recalibrate_batch_norm`; the losses in training and inference; the messages of
`BatchNormMonitor`; and at the end an explanation of each result. If both replicas see similar data,
nothing fails. If 80 % of each replica's images are from its own five classes, as with sorted files,
(a) falls far behind. One tower's update and Keras's own layer, which keep a single replica's
statistics, fall behind less. `kdist` stays near the accuracy of one replica, and recalibration
fixes the statistics in all cases. Takes about five minutes on two CPU cores.
"""
# ruff: noqa: ARG002, D102, D103 - the names of the methods are Keras's

import argparse
from pathlib import Path

import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist.callbacks import BatchNormMonitor, StopAtNonFinite
from kdist.report.charts import Chart, Figure, Point, Series
from kdist.report.html_page import Section, render_page

GLOBAL_BATCH = 64
MOMENTUM = 0.9
OWN_CLASSES = 0.8  # fraction of a replica's images that are from its own five classes
CASES = {"one": (1, 0.0), "alike": (2, 0.0), "unequal": (2, OWN_CLASSES)}


class Library(keras.layers.BatchNormalization):
    """(d) Keras's own layer."""

    def __init__(self, channels):
        super().__init__(momentum=MOMENTUM)
        self.channels = channels


class SharedVariables(Library):
    """(a) Variables that every replica overwrites, averaged by an EMA after the step.

    The variables are made outside the strategy, as the towers of TF 1 shared variables. A mirrored
    variable without aggregation rejects the assignment, and `ema.apply` within replicas fails in
    TensorFlow.
    """

    def __init__(self, channels):
        super().__init__(channels)
        self.batch = [tf.Variable(tf.zeros(channels)), tf.Variable(tf.ones(channels))]
        self.ema = tf.train.ExponentialMovingAverage(MOMENTUM)
        self.ema.apply(self.batch)

    def update(self, mean, variance):
        self.batch[0].assign(mean)
        self.batch[1].assign(variance)

    def call(self, inputs, training=None, mask=None):
        if not training:
            return super().call(inputs, training=False, mask=mask)
        mean, variance = tf.nn.moments(inputs, [0, 1, 2])
        if not tf.executing_eagerly():  # Keras trains in a graph; the monitor runs eagerly
            self.update(mean, variance)
        return tf.nn.batch_normalization(
            inputs, mean, variance, self.beta, self.gamma, self.epsilon
        )


class ByHand(Library):
    """(b) `var.assign(var * m + batch * (1 - m))`: Keras's update, averaged over replicas."""

    aggregation = "mean"

    def add_weight(self, *args, trainable=True, **kwargs):
        if not trainable:
            kwargs["aggregation"] = self.aggregation
        return super().add_weight(*args, trainable=trainable, **kwargs)


class OneTower(ByHand):
    """The second question: only the first replica's update is kept."""

    aggregation = "only_first_replica"


class AssignMovingAverage(SharedVariables):
    """(c) TensorFlow's `assign_moving_average`, which averages over the replicas itself.

    TensorFlow 2 exports it only in `tf.__internal__`.
    """

    def update(self, mean, variance):
        for variable, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
            tf.__internal__.train.assign_moving_average(
                variable.value, value, MOMENTUM, zero_debias=False
            )


class ApplyAverages(keras.callbacks.Callback):
    """Run (a)'s EMA after each step, and copy its averages at the end of the epoch."""

    def __init__(self, norms):
        super().__init__()
        self.norms = norms

    def on_train_batch_end(self, batch, logs=None):
        for norm in self.norms:
            norm.ema.apply(norm.batch)

    def on_epoch_end(self, epoch, logs=None):
        for norm in self.norms:
            norm.moving_mean.assign(norm.ema.average(norm.batch[0]))
            norm.moving_variance.assign(norm.ema.average(norm.batch[1]))


WAYS = {
    "(a) shared variables + EMA": SharedVariables,
    "(b) averaged by hand": ByHand,
    "(c) assign_moving_average": AssignMovingAverage,
    "(d) Keras's layer": Library,
    "one tower's update": OneTower,
    "kdist": Library,
}
WHY = {
    "(a) shared variables + EMA": "every replica overwrites the same variables, so the average is"
    " over whichever replica wrote last: one replica's data, at random",
    "(b) averaged by hand": "the moving statistics are averaged over replicas, but each replica"
    " normalizes by its own batch, and the mean of variances ignores that the means differ",
    "(c) assign_moving_average": "as (b): TensorFlow averages over replicas inside it",
    "(d) Keras's layer": "by default (synchronized=False) its statistics are not aggregated over"
    " replicas, and only replica 0's are saved: the same as one tower's update",
    "one tower's update": "the statistics describe only replica 0's images, not all of the data",
    "kdist": "one mean and variance over the global batch, the same on every replica",
}


def small_network(norms):
    convolution = {"kernel_size": 3, "strides": 2, "padding": "same", "use_bias": False}
    layers = [keras.Input((28, 28, 1))]
    for norm in norms:
        layers += [keras.layers.Conv2D(norm.channels, **convolution), norm, keras.layers.ReLU()]
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(10)])


def compile_model(model):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    return model


def draw_order(labels, replicas, own_fraction, rng):
    """Indices, batch after batch; each batch's first half goes to replica 0."""
    images = rng.permutation(len(labels))
    if replicas == 1:
        return images
    sorted_away = rng.random(len(images)) < own_fraction
    side = np.where(sorted_away, labels[images] >= 5, rng.integers(0, 2, len(images)))
    shards = [images[side == replica] for replica in (0, 1)]
    half = GLOBAL_BATCH // 2
    batches = min(map(len, shards)) // half
    parts = [shard[: batches * half].reshape(batches, half) for shard in shards]
    return np.concatenate(parts, axis=1).ravel()


def train(name, case, epochs, x, y, test):
    """Return accuracies by epoch, recalibrated accuracy, losses, and diagnoses by epoch."""
    replicas, own_fraction = CASES[case]
    keras.utils.set_random_seed(0)
    norms = [WAYS[name](channels) for channels in (8, 16)]
    if name == "kdist":
        strategy = kdist.MirroredStrategy(replicas=replicas)
        model = strategy.build(lambda: small_network(norms))
    else:
        devices = [f"CPU:{i}" for i in range(replicas)]
        strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
        with strategy.scope():
            model = small_network(norms)
    with strategy.scope():
        compile_model(model)
    # The results of the saved model, on one device.
    saved = compile_model(small_network([Library(8), Library(16)]))
    callbacks = [ApplyAverages(norms)] if WAYS[name] is SharedVariables else []
    batch = draw_order(y, replicas, own_fraction, np.random.default_rng(1))[:GLOBAL_BATCH]
    monitor = BatchNormMonitor(batch=(x[batch], y[batch]), verbose=0)
    rng, accuracy, diagnoses = np.random.default_rng(0), [], []
    for _ in range(epochs):
        order = draw_order(y, replicas, own_fraction, rng)
        history = model.fit(
            x[order], y[order], batch_size=GLOBAL_BATCH, shuffle=False, verbose=0,
            callbacks=[StopAtNonFinite(), *callbacks, monitor],
        )  # fmt: skip
        diagnoses.append(monitor.diagnosis)
        saved.set_weights(model.get_weights())
        accuracy.append(saved.evaluate(*test, batch_size=500, verbose=0)[1])
    inference_loss = saved.evaluate(x, y, batch_size=500, verbose=0)[0]
    kdist.recalibrate_batch_norm(model, x[rng.permutation(len(x))[:2560]], batch_size=GLOBAL_BATCH)
    saved.set_weights(model.get_weights())
    cured = saved.evaluate(*test, batch_size=500, verbose=0)[1]
    return accuracy, cured, (history.history["loss"][0], inference_loss), diagnoses


def write_chart(results, path):
    charts = [
        Chart(
            title=f"Test accuracy, {case}",
            x_label="Epoch",
            series=[
                Series(name, [Point(epoch, value) for epoch, value in enumerate(accuracy, 1)])
                for (own, name), (accuracy, *_) in results.items()
                if own == case
            ],
        )
        for case in dict.fromkeys(case for case, _ in results)
    ]
    figure = Figure(caption="One line per way.", charts=charts)
    page = render_page("Batch norm's pitfalls", [Section(title="Ways", figures=[figure])])
    Path(path).write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--subset", type=int, help="train on this many images only")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--plot", help="draw the accuracies into this HTML file")
    args = parser.parse_args()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    data = kdist.data.fashion_mnist(sample=True)
    if args.subset is not None:
        data = data.subset(args.subset)
    x, test_x = ((v / 255 - 0.286) / 0.353 for v in (data.train_images, data.test_images))
    x, test = x.astype("float32"), (test_x.astype("float32"), data.test_labels)
    results = {}
    print("replicas and data; way | test accuracy by epoch | recalibrated | loss: train, inference")
    for case in args.cases:
        for name in args.ways:
            result = train(name, case, args.epochs, x, data.train_labels, test)
            results[case, name] = result
            accuracy, cured, (loss, inference_loss), diagnoses = result
            by_epoch = " ".join(f"{value:.3f}" for value in accuracy)
            print(
                f"{case:8}{name:27}| {by_epoch} | {cured:.3f} | {loss:.3f} {inference_loss:.3f}",
                flush=True,
            )
            for epoch, diagnosis in enumerate(diagnoses, 1):
                if diagnosis:
                    print(f"{'':8}monitor, epoch {epoch}: {diagnosis}", flush=True)
    print("\nWhy:", *(f"  {name}: {WHY[name]}" for name in args.ways), sep="\n")
    if args.plot:
        write_chart(results, args.plot)


if __name__ == "__main__":
    main()
