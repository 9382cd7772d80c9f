"""Memory and time of a step with the optimizer's state divided, compared with the ordinary step.

    python -m benchmarks.shard_optimizer        # 50 million parameters, Adam: 10 minutes, 6 GiB

A transformer of 50 million parameters trains with Adam in float32, on 4 replicas. Each process
trains one way, in turn (A B B A …), because the peak of memory is that of a process: its most, less
its memory before the model was made, divided by the replicas. The bytes of weights and of the
optimizer's state are counted for one device.
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

from .measure import Table, format_spread, make_parser, run_again, take_turns

TOKENS, WORDS = 32, 11000
WAYS = ("ordinary", "divided")
ROWS = {  # by the key of a measurement: title and unit
    "weights": ("weights, MB", 1e6),
    "state": ("optimizer's state, MB", 1e6),
    "peak": ("peak of memory, MB", 1e6),
    "seconds": ("step, ms", 1e-3),
}


def main() -> None:
    """Compare both ways, or train one way."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="training steps that are timed")
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16, help="global batch, of 32 tokens each")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(train(options)))
        return
    ways = {way: functools.partial(run_again, "--way", way) for way in WAYS}
    ordinary, divided = take_turns(ways, options.rounds).values()
    parameters = ordinary[0]["parameters"]
    print(f"{parameters:,} parameters, Adam, {options.replicas} replicas, float32\n")
    table = Table("on each replica", "ordinary", "shard_optimizer", "ratio", file=options.json)
    for key, (title, unit) in ROWS.items():
        ratios = [b[key] / a[key] for a, b in zip(ordinary, divided, strict=True)]
        medians = [statistics.median(run[key] for run in runs) for runs in (ordinary, divided)]
        varies = max(ratios) > 1.01 * min(ratios)
        ratio = format_spread(ratios) if varies else f"{statistics.median(ratios):.2f}"
        table.add(title, *(f"{median / unit:.0f}" for median in medians), ratio)


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

    strategy = kdist.MirroredStrategy(
        replicas=options.replicas, shard_optimizer=options.way == "divided"
    )
    strategy.build(lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    words = np.random.default_rng(0).integers(0, WORDS, (options.batch, TOKENS))
    Path("/proc/self/clear_refs").write_text("5")  # the peak, `VmHWM`, begins anew
    before = memory_of_process("VmRSS")
    model = strategy.build(lambda: make_transformer(options.layers, options.width))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss)
    seconds = []
    for _ in range(2 + options.steps):
        began = time.perf_counter()
        model.train_on_batch(words, words)
        seconds.append(time.perf_counter() - began)
    peak = memory_of_process("VmHWM") - before
    return {
        "parameters": model.count_params(),
        "seconds": statistics.median(seconds[2:]),  # the first step traces
        "peak": peak / options.replicas,
        "weights": bytes_on_one_device(model.variables),
        "state": bytes_on_one_device(model.optimizer.variables),
    }


def memory_of_process(name: str) -> int:
    """Return bytes of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(re.findall(r"\d+", line)[0])


def bytes_on_one_device(variables: Iterable[Any]) -> int:
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
