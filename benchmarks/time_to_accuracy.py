"""The time to a validation accuracy: the fast recipe, a simple convnet, the lab's recipe.

    python -m benchmarks.time_to_accuracy              # the sample, 0.85: ten minutes on two cores
    python -m benchmarks.time_to_accuracy --dataset fashion_mnist --target 0.9

Each run is a separate process; the candidates take turns. The time is that of `fit`, including
tracing and validation, until an epoch beats the target or `--budget` seconds have passed. All
candidates use oneDNN, also where stock Keras does not. The convnet is keras.io's for MNIST
(examples/vision/mnist_convnet), with Adam and batches of 128. The lab's recipe is plain SGD with a
rate of 0.01, batches of 32, flips and shifts; its network has width 1 instead of 10, so that an
epoch takes minutes instead of hours on a CPU.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from .measure import Table, format_spread, make_parser, run_again, take_turns

CANDIDATES = {
    "fast": "kdist, `--recipe fast`",
    "convnet": "stock Keras, convnet of keras.io",
    "lab": "the lab's recipe, WRN-16-1, on kdist",
}


def main() -> None:
    """Compare the candidates, or run one of them once."""
    parser = make_parser(__doc__)
    parser.add_argument("--dataset", default="sample")
    parser.add_argument("--data-dir", help="as for kdist train")
    parser.add_argument("--target", type=float, default=0.85)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=180, help="maximum seconds of training")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=CANDIDATES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        seconds, accuracy = train(args.only, args)
        print(json.dumps({"seconds": seconds, "accuracy": accuracy}))
        return
    candidates = {name: make_runner(name, args.seed) for name in args.candidates}
    title = f"{args.dataset} to {args.target:g}"
    table = Table(title, "seconds", "reached", "best accuracy", file=args.json)
    for name, runs in take_turns(candidates, args.rounds).items():
        table.add(CANDIDATES[name], *summarize_runs(runs, args.target))


def make_runner(name: str, seed: int) -> Callable[[], Any]:
    """Return a function that runs a candidate in a separate process, with the next seed."""
    seeds = itertools.count(seed)
    return lambda: run_again("--only", name, "--seed", str(next(seeds)))


def summarize_runs(runs: Sequence[dict[str, float]], target: float) -> list[str]:
    """Return median and range of the seconds, the runs that reached the target, and accuracy."""
    seconds = [run["seconds"] for run in runs]
    reached = sum(run["accuracy"] > target for run in runs)
    best = statistics.median(run["accuracy"] for run in runs)
    shown = format_spread(seconds, ".0f") if reached else f"not in {max(seconds):.0f}"
    return [shown, f"{reached} of {len(runs)}", f"{best:.3f}"]


def train(name: str, args: argparse.Namespace) -> tuple[float, float]:
    """Train a candidate once; return its seconds and best accuracy."""
    from kdist.training.recipes import read_recipe

    if name == "convnet":
        return train_convnet(args)
    if name == "lab":
        return train_by_kdist({"width": 1, "val_batch_size": 500}, args)
    epochs = {"epochs": 4} if args.target > 0.9 else {}
    return train_by_kdist(read_recipe("fast") | epochs, args)


def train_by_kdist(settings: dict[str, Any], args: argparse.Namespace) -> tuple[float, float]:
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
        result = train(config, announce=lambda _: None, verbose=0)
    return result.seconds, result.best_val_accuracy


def train_convnet(args: argparse.Namespace) -> tuple[float, float]:
    """Train with stock Keras, without a strategy."""
    import keras
    from kdist.callbacks import StopAtAccuracy
    from kdist.data import fashion_mnist

    is_sample = args.dataset == "sample"
    data = fashion_mnist(data_dir=args.data_dir, sample=is_sample, announce=lambda _: None)
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


if __name__ == "__main__":
    main()
