"""Lab 3 of the course, at CPU size: how far can the batch grow?

    python examples/lab3_large_batch.py --plot lab3.html     # about two minutes on two cores

Trains a small convolutional network with batch norm on the embedded sample, its images halved to
14 x 14, on two replicas, each time for the same number of epochs. The learning rate, 0.125 for a
batch of 32, is scaled linearly with the global batch:

1. batch 512, rate 2: diverges;
2. batch 512, rate 2, warmed up over 3 epochs: learns;
3. batch 1024, rate 4, warmed up: diverges again;
4. batch 1024, NovoGrad, rate 0.2, warmed up: learns. LARS does too.

Prints the test accuracy of each run by epoch, and which runs diverged: they end near chance, 0.1.
"""
# ruff: noqa: D103

import argparse
from pathlib import Path

import kdist
import keras
from kdist.callbacks import StopAtNonFinite
from kdist.optimizers import WarmUp
from kdist.report.charts import Chart, Figure, Point, Series
from kdist.report.html_page import Section, render_page

BASE_RATE, BASE_BATCH = 0.125, 32
DIVERGED = 0.35  # a run with a lower test accuracy has diverged


def make_model():
    convolution = {"kernel_size": 3, "strides": 2, "padding": "same"}
    return keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            keras.layers.Conv2D(16, **convolution),
            keras.layers.BatchNormalization(momentum=0.8),
            keras.layers.ReLU(),
            keras.layers.Conv2D(32, **convolution),
            keras.layers.BatchNormalization(momentum=0.8),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def scale_rate(batch):
    return kdist.scale_learning_rate(BASE_RATE, global_batch=batch, reference_batch=BASE_BATCH)


def make_sgd(rate):
    return keras.optimizers.SGD(rate, momentum=0.9)


def make_lars(rate):
    return kdist.optimizers.LARS(rate, trust_coefficient=0.01)


# Global batch, epochs of warm-up, optimizer, learning rate.
RUNS = {
    "large batch": (512, 0, make_sgd, scale_rate(512)),
    "large batch, warm-up": (512, 3, make_sgd, scale_rate(512)),
    "larger batch, warm-up": (1024, 3, make_sgd, scale_rate(1024)),
    "larger batch, NovoGrad": (1024, 3, kdist.optimizers.NovoGrad, 0.2),
    "larger batch, LARS": (1024, 3, make_lars, scale_rate(1024)),
}


def halve_images(images):
    """Average 2 x 2 pixels, and standardize."""
    x = images.reshape(-1, 14, 2, 14, 2, 1).mean((2, 4)) / 255
    return ((x - 0.286) / 0.33).astype("float32")


def train(strategy, run, epochs, x, y, test):
    batch, warmup_epochs, make_optimizer, rate = run
    keras.utils.set_random_seed(0)
    schedule = WarmUp(rate, steps=warmup_epochs * -(-len(x) // batch))
    model = strategy.build(make_model)
    with strategy.scope():
        model.compile(
            make_optimizer(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
    options = {"epochs": epochs, "validation_data": test, "verbose": 0}
    fitted = model.fit(x, y, batch_size=batch, callbacks=[StopAtNonFinite()], **options)
    return fitted.history["val_accuracy"]


def write_chart(results, path):
    series = [
        Series(name, [Point(epoch, value) for epoch, value in enumerate(accuracies, 1)])
        for name, accuracies in results.items()
    ]
    chart = Chart(title="Test accuracy", x_label="Epoch", series=series, from_zero=True)
    figure = Figure(caption="One line per run.", charts=[chart])
    page = render_page("Large batches", [Section(title="Runs", figures=[figure])])
    Path(path).write_text(page, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--plot", help="draw the accuracies into this HTML file")
    args = parser.parse_args()
    strategy = kdist.MirroredStrategy(replicas=args.replicas)
    data = kdist.data.fashion_mnist(sample=True)
    x, test = halve_images(data.train_images), (halve_images(data.test_images), data.test_labels)
    results = {}
    for name in args.runs:
        batch, warmup_epochs, _, rate = RUNS[name]
        accuracies = train(strategy, RUNS[name], args.epochs, x, data.train_labels, test)
        results[name] = accuracies
        print(
            f"{name}: global batch {batch}, rate {rate:g}, warm-up {warmup_epochs} epochs |"
            f" {' '.join(f'{value:.3f}' for value in accuracies)} |"
            f" {'learns' if accuracies[-1] >= DIVERGED else 'diverged'}",
            flush=True,
        )
    if args.plot:
        write_chart(results, args.plot)


if __name__ == "__main__":
    main()
