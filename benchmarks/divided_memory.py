"""Memory and time of a step with divided variables and rematerialization, beside the ordinary step.

    python -m benchmarks.divided_memory        # 50 million parameters, Adam: 15 minutes, 6 GiB

A transformer of 50 million parameters trains with Adam in float32, on 4 replicas: as usual, with
`shard_optimizer=True`, with `shard_weights=True`, and also within `keras.RematScope`. Each way has
a process, in turn (A B C D D C …). The peak of memory is the maximum of the process, less the
maximum of a process with layers of width 64 (the same traced step with few other bytes), divided by
the replicas. The table also has the bytes of weights and of the optimizer's state on a device.
"""

import argparse
import functools
import json
import re
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .measure import Table, make_parser, run_again, take_turns

TOKENS, WORDS = 32, 11000
SMALL_WIDTH = 64
OPTIONS: dict[str, dict[str, bool]] = {
    "ordinary": {},
    "shard_optimizer": {"shard_optimizer": True},
    "shard_weights": {"shard_weights": True},
    "and remat": {"shard_weights": True},
}
ROWS = {  # by the key of a measurement: title and unit
    "weights": ("weights, MB", 1e6),
    "state": ("optimizer's state, MB", 1e6),
    "peak": ("peak of memory, MB", 1e6),
    "seconds": ("step, ms", 1e-3),
}


def main() -> None:
    """Compare all ways, or train one way."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="training steps that are timed")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16, help="global batch, of 32 tokens each")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--way", choices=OPTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(train(options)))
        return
    ways = {way: functools.partial(measure, way) for way in OPTIONS}
    runs_by_way = take_turns(ways, options.rounds)
    parameters = runs_by_way["ordinary"][0]["parameters"]
    print(f"{parameters:,} parameters, Adam, {options.replicas} replicas, float32\n")
    table = Table("on each replica", *OPTIONS, file=options.json)
    for key, (title, unit) in ROWS.items():
        cells = []
        for way, runs in runs_by_way.items():
            ratio = statistics.median(
                run[key] / ordinary[key]
                for run, ordinary in zip(runs, runs_by_way["ordinary"], strict=True)
            )
            median = statistics.median(run[key] for run in runs) / unit
            cells.append(f"{median:.0f}" + f" ({ratio:.2f})" * (way != "ordinary"))
        table.add(title, *cells)


def measure(way: str) -> dict[str, float]:
    """Train one way in a process; subtract the memory of a process with a small width."""
    small = run_again("--way", way, "--width", str(SMALL_WIDTH), "--steps", "1")
    result = run_again("--way", way)
    return {**result, "peak": result["peak"] - small["peak"]}


def make_transformer(layers: int, width: int) -> Any:
    """Return a decoder without a mask: the same work, and every layer is Keras's own."""
    import keras

    tokens = keras.Input((TOKENS,), dtype="int32")
    x = keras.layers.Embedding(WORDS, width)(tokens)
    for _ in range(layers):
        normed = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(width // 64, 64)(normed, normed)
        normed = keras.layers.LayerNormalization()(x)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(normed)
        x = x + keras.layers.Dense(width)(hidden)
    logits = keras.layers.Dense(WORDS, use_bias=False)(keras.layers.LayerNormalization()(x))
    return keras.Model(tokens, logits)


def train(options: argparse.Namespace) -> dict[str, float]:
    """Train a few steps; return seconds of a step, and bytes."""
    import kdist
    import keras
    import numpy as np

    strategy = kdist.MirroredStrategy(replicas=options.replicas, **OPTIONS[options.way])
    strategy.build(lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    tokens = np.random.default_rng(0).integers(0, WORDS, (options.batch, TOKENS))
    Path("/proc/self/clear_refs").write_text("5")  # the peak, `VmHWM`, begins anew
    before = read_process_memory("VmRSS")
    with keras.RematScope("full" if options.way == "and remat" else None):
        model = strategy.build(lambda: make_transformer(options.layers, options.width))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss)
    seconds = []
    for _ in range(2 + options.steps):
        start = time.perf_counter()
        model.train_on_batch(tokens, tokens)
        seconds.append(time.perf_counter() - start)
    peak = read_process_memory("VmHWM") - before
    return {
        "parameters": model.count_params(),
        "seconds": statistics.median(seconds[2:]),  # the first step traces
        "peak": peak / options.replicas,
        "weights": count_bytes_on_device(model.variables),
        "state": count_bytes_on_device(model.optimizer.variables),
    }


def read_process_memory(name: str) -> int:
    """Return bytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(re.findall(r"\d+", line)[0])


def count_bytes_on_device(variables: Iterable[Any]) -> int:
    """Return the bytes of variables on the device that has most of them."""
    sizes: dict[str, int] = {}
    for variable in variables:
        value = variable.value
        for part in getattr(value, "parts", None) or value.values:
            size = part.shape.num_elements() * part.dtype.size
            sizes[part.device] = sizes.get(part.device, 0) + size
    return max(sizes.values())


if __name__ == "__main__":
    main()
