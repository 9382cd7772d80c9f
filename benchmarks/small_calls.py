"""Small calls and beginnings of epochs: kdist on several replicas beside stock Keras.

    python benchmarks/small_calls.py        # two minutes on two cores

A policy network of two dense layers, as of reinforcement learning, predicts one observation, fits
32 of them, and is called directly, thousands of times. Then an epoch of Fashion-MNIST's shapes
begins: an iterator is made and gives its first batch. Prints milliseconds of processor time, and
the median ratio of rounds that alternate: of calls to stock Keras, of epochs to TensorFlow's own
`MirroredStrategy`. `read ahead` is how batches are divided over GPUs, on logical CPUs.
"""

import argparse
import functools
import statistics
import time

import interleaved
import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist._upstream.device_iterators import share_functions

CALLS = {"predict of 1": 40, "fit of 32": 40, "train_on_batch of 32": 200, "predict_on_batch": 200}


def policy() -> keras.Model:
    """Return the network, compiled."""
    model = keras.Sequential(
        [keras.Input((4,)), *(keras.layers.Dense(64, activation="relu") for _ in range(2))]
    )
    model.add(keras.layers.Dense(2))
    return model


def calls(model: keras.Model) -> dict:
    """Return what is timed, by name."""
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 4)).astype("float32"), np.zeros((32, 2), "float32")
    return {
        "predict of 1": lambda: model.predict(x[:1], verbose=0),
        "fit of 32": lambda: model.fit(x, y, epochs=1, verbose=0),
        "train_on_batch of 32": lambda: model.train_on_batch(x, y),
        "predict_on_batch": lambda: model.predict_on_batch(x[:1]),
    }


def beginnings(replicas: int) -> dict:
    """Return ways to make the iterator of an epoch and read its first batch, by name."""
    devices = [f"CPU:{number}" for number in range(replicas)]
    stock = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
    images, labels = np.zeros((512, 28, 28, 1), "float32"), np.zeros(512, "int64")
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32).prefetch(2)
    ways = {
        "stock": stock.experimental_distribute_dataset(batches),
        "kdist": kdist.MirroredStrategy(devices).experimental_distribute_dataset(batches),
        "read ahead": share_functions(stock.experimental_distribute_dataset(batches)),
    }
    return {name: functools.partial(lambda data: next(iter(data)), d) for name, d in ways.items()}


def table(title: str, works: dict, base: str, *, rounds: int, count: int) -> None:
    """Time works in turn, each `count` times, and print a line of milliseconds and ratios."""
    repeated = {name: functools.partial(repeat, work, count) for name, work in works.items()}
    for work in repeated.values():
        work()
    timed = {n: interleaved.timed(w, clock=time.process_time) for n, w in repeated.items()}
    times = interleaved.rounds(timed, rounds)
    cells = [f"{1000 * statistics.median(times[name]) / count:.2f} ms" for name in works]
    for name in works:
        if name != base:
            ratios = [a / b for a, b in zip(times[name], times[base], strict=True)]
            cells.append(interleaved.spread(ratios))
    print(f"| {title} | {' | '.join(cells)} |", flush=True)


def repeat(work, count: int) -> None:
    """Call `work` `count` times."""
    for _ in range(count):
        work()


def header(names: list, base: str) -> None:
    """Print the head of a table."""
    ratios = [f"{name} : {base}" for name in names if name != base]
    print("| | " + " | ".join([*names, *ratios]) + " |")
    print("| --- |" + " --- |" * (len(names) + len(ratios)))


def main() -> None:
    """Time everything in turn, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    strategies = {n: kdist.MirroredStrategy([f"CPU:{i}" for i in range(n)]) for n in (2, 1)}
    models = {"stock Keras": policy()}
    models |= {f"kdist on {n}": strategies[n].build(policy) for n in (1, 2)}
    works = {name: calls(model) for name, model in models.items()}
    header(list(models), "stock Keras")
    for call, count in CALLS.items():
        of_call = {name: works[name][call] for name in models}
        table(call, of_call, "stock Keras", rounds=options.rounds, count=count)
    print()
    header(["stock", "kdist", "read ahead"], "stock")
    for replicas in (1, 2, 8):
        title = f"beginning of an epoch on {replicas}"
        table(title, beginnings(replicas), "stock", rounds=options.rounds, count=5)


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
    )
    main()
