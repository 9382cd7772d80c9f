"""The time to a validation accuracy: the fast recipe, a simple convnet, the lab's recipe.

    python benchmarks/time_to_accuracy.py              # the sample, 0.85: ten minutes on two cores
    python benchmarks/time_to_accuracy.py --dataset fashion_mnist --target 0.9

Each run is a separate process; the candidates take turns. The time is that of `fit`, including
tracing and validation, until an epoch beats the target or `--budget` seconds have passed. All use
oneDNN, which stock Keras does not use on most CPUs. The convnet is that of keras.io for MNIST
(examples/vision/mnist_convnet), with Adam and batches of 128. The lab's recipe is plain SGD with a
rate of 0.01, batches of 32, flips and shifts; its network has width 1 instead of 10, so that an
epoch takes minutes instead of hours on a CPU.
"""

import argparse
import itertools
import json
import statistics
import tempfile

import interleaved
import separate_process

CANDIDATES = {
    "fast": "kdist, `--recipe fast`",
    "convnet": "stock Keras, convnet of keras.io",
    "lab": "the lab's recipe, WRN-16-1, on kdist",
}

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--dataset", default="sample")
parser.add_argument("--data-dir", help="as for kdist train")
parser.add_argument("--target", type=float, default=0.85)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--budget", type=float, default=180, help="maximum seconds of training")
parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
parser.add_argument("--only", choices=CANDIDATES, help="run this one here, and print JSON")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def silent(_):
    """Ignore a line."""


def trained_by_kdist(settings):
    """Run `kdist train` until it reaches the target."""
    from kdist.training.config import TrainConfig
    from kdist.training.run import train

    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig.from_dict(
            settings
            | {"dataset": args.dataset, "data_dir": args.data_dir, "target_accuracy": args.target}
            | {"patience": 1, "time_budget": args.budget, "replicas": 1, "seed": args.seed}
            | {"run_dir": f"{folder}/run", "save_model": False}
        )
        result = train(config, announce=silent, verbose=0)
    return result.seconds, result.best_val_accuracy


def convnet():
    """Train with stock Keras, without a strategy."""
    import time

    import keras
    from kdist.callbacks import StopAtAccuracy
    from kdist.data import fashion_mnist

    data = fashion_mnist(data_dir=args.data_dir, sample=args.dataset == "sample", announce=silent)
    keras.utils.set_random_seed(args.seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    start = time.perf_counter()
    history = model.fit(
        data.train_images / 255.0,
        data.train_labels,
        batch_size=128,
        epochs=1000,
        validation_data=(data.test_images / 255.0, data.test_labels),
        validation_batch_size=500,
        callbacks=[StopAtAccuracy(args.target, time_budget=args.budget, patience=1, verbose=0)],
        verbose=0,
    ).history
    return time.perf_counter() - start, max(history["val_accuracy"])


def run_here(name):
    """Print seconds and best accuracy of one candidate, as JSON."""
    if name == "convnet":
        seconds, accuracy = convnet()
    else:
        from kdist.training.recipes import read_recipe

        lab = {"width": 1, "val_batch_size": 500}
        fast = {**read_recipe("fast"), "epochs": 4} if args.target > 0.9 else read_recipe("fast")
        seconds, accuracy = trained_by_kdist(fast if name == "fast" else lab)
    print(json.dumps({"seconds": seconds, "accuracy": accuracy}))


def runs_of(name):
    """Return a function that runs a candidate in a separate process, with the next seed."""
    seeds = itertools.count(args.seed)
    return lambda: separate_process.result("--only", name, "--seed", str(next(seeds)))


def row(values):
    """Format median and range of the seconds, the runs that reached the target, and accuracy."""
    seconds = [value["seconds"] for value in values]
    reached = sum(value["accuracy"] > args.target for value in values)
    best = statistics.median(value["accuracy"] for value in values)
    shown = interleaved.spread(seconds, ".0f") if reached else f"not in {max(seconds):.0f}"
    return f"{shown} | {reached} of {len(values)} | {best:.3f}"


if args.only:
    run_here(args.only)
else:
    results = interleaved.rounds({name: runs_of(name) for name in args.candidates}, args.rounds)
    print(f"| {args.dataset} to {args.target:g} | seconds | reached | best accuracy |")
    print("| --- | --- | --- | --- |")
    for name, values in results.items():
        print(f"| {CANDIDATES[name]} | {row(values)} |")
