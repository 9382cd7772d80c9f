"""Small calls and beginnings of epochs: kdist on several replicas beside stock Keras.

    python -m benchmarks.small_calls        # two minutes on two cores

A policy network of two dense layers, as in reinforcement learning, predicts an observation, fits
32 observations, and is called directly, thousands of times. Then an epoch of images like
Fashion-MNIST's begins: an iterator is made and returns its first batch. Prints milliseconds of
processor time, and the median ratio of alternating rounds: calls are compared with stock Keras,
epochs with TensorFlow's `MirroredStrategy`. `read ahead` divides batches as on GPUs, on logical
CPUs.
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import kdist
import keras
import numpy as np
import tensorflow as tf
from kdist._upstream.device_iterators import share_functions

from .measure import Table, format_ratio, make_parser, make_timer, take_turns

CALLS = {"predict of 1": 40, "fit of 32": 40, "train_on_batch of 32": 200, "predict_on_batch": 200}


def main() -> None:
    """Time everything in turn, and print both tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    strategies = {n: kdist.MirroredStrategy([f"CPU:{i}" for i in range(n)]) for n in (2, 1)}
    models = {"stock Keras": make_policy_network()}
    models |= {f"kdist on {n}": strategies[n].build(make_policy_network) for n in (1, 2)}
    works = {name: make_calls(model) for name, model in models.items()}
    tables = {
        call: ({name: works[name][call] for name in models}, count) for call, count in CALLS.items()
    }
    print_table("calls", tables, options)
    print()
    epochs = {f"an epoch on {n}": (make_epoch_starts(n), 5) for n in (1, 2, 8)}
    print_table("beginnings of epochs", epochs, options)


def make_policy_network() -> keras.Model:
    """Return the network."""
    dense = [keras.layers.Dense(64, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((4,)), *dense, keras.layers.Dense(2)])


def make_calls(model: keras.Model) -> dict[str, Callable[[], Any]]:
    """Return the calls of a model, by name."""
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 4)).astype("float32"), np.zeros((32, 2), "float32")
    return {
        "predict of 1": lambda: model.predict(x[:1], verbose=0),
        "fit of 32": lambda: model.fit(x, y, epochs=1, verbose=0),
        "train_on_batch of 32": lambda: model.train_on_batch(x, y),
        "predict_on_batch": lambda: model.predict_on_batch(x[:1]),
    }


def make_epoch_starts(replicas: int) -> dict[str, Callable[[], Any]]:
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


def print_table(
    title: str, rows: Mapping[str, tuple[Mapping[str, Callable[[], Any]], int]], options: Any
) -> None:
    """Time the candidates of each row in turn, and print ratios to the first candidate."""
    names = list(next(iter(rows.values()))[0])
    base, *other_names = names
    columns = [title, *names, *(f"{name} : {base}" for name in other_names)]
    table = Table(*columns, title=title, file=options.json)
    for row, (works, count) in rows.items():
        candidates = {
            name: make_timer(functools.partial(repeat, work, count), clock=time.process_time)
            for name, work in works.items()
        }
        take_turns(candidates, 1)  # warms them up
        times = take_turns(candidates, options.rounds)
        cells = [f"{1000 * statistics.median(times[name]) / count:.2f} ms" for name in names]
        table.add(row, *cells, *(format_ratio(times[name], times[base]) for name in other_names))


def repeat(work: Callable[[], Any], count: int) -> None:
    """Call `work` `count` times."""
    for _ in range(count):
        work()


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
    )
    main()
