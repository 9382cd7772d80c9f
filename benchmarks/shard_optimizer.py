"""Memory and time of a step with the optimizer's state divided, compared with the ordinary step.

    python benchmarks/shard_optimizer.py        # 50 million parameters, Adam: 10 minutes, 6 GiB

A transformer of 50 million parameters trains with Adam in float32, on 4 replicas. Each process
trains one way, in turn (A B B A …), because the peak of memory is that of a process: what it has at
most, less what it had before the model was made, divided by the replicas. The bytes of weights and
of the optimizer's state are counted for one device.
"""

import argparse
import functools
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import interleaved
import separate_process

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--steps", type=int, default=4, help="training steps that are timed in each")
parser.add_argument("--replicas", type=int, default=4)
parser.add_argument("--batch", type=int, default=16, help="global batch, of 32 tokens each")
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--way", choices=["ordinary", "divided"], help="train once this way")
options = parser.parse_args()

TOKENS, WORDS = 32, 11000


def transformer():
    """Return a decoder without a mask: the same work, and every layer is Keras's own."""
    import keras

    tokens = keras.Input((TOKENS,), dtype="int32")
    x = keras.layers.Embedding(WORDS, options.width)(tokens)
    for _ in range(options.layers):
        normed = keras.layers.LayerNormalization()(x)
        heads = options.width // 64
        x = x + keras.layers.MultiHeadAttention(heads, 64)(normed, normed)
        normed = keras.layers.LayerNormalization()(x)
        hidden = keras.layers.Dense(4 * options.width, activation="gelu")(normed)
        x = x + keras.layers.Dense(options.width)(hidden)
    logits = keras.layers.Dense(WORDS, use_bias=False)(keras.layers.LayerNormalization()(x))
    return keras.Model(tokens, logits)


def train():
    """Train a few steps; print what they took as JSON."""
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
    model = strategy.build(transformer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-4), loss)
    model.train_on_batch(words, words)  # the first step traces
    model.train_on_batch(words, words)
    seconds = []
    for _ in range(options.steps):
        began = time.perf_counter()
        model.train_on_batch(words, words)
        seconds.append(time.perf_counter() - began)
    peak = memory_of_process("VmHWM") - before
    print(
        json.dumps(
            {
                "parameters": model.count_params(),
                "seconds": statistics.median(seconds),
                "peak": peak / options.replicas,
                "weights": on_one_device(model.variables),
                "state": on_one_device(model.optimizer.variables),
            }
        )
    )


def memory_of_process(name):
    """Return the bytes of this process, as Linux counts them."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def on_one_device(variables):
    """Return the bytes of variables on the device that has most of them."""
    bytes_of = {}
    for variable in variables:
        value = variable.value
        for part in getattr(value, "parts", None) or value.values:
            size = part.shape.num_elements() * part.dtype.size
            bytes_of[part.device] = bytes_of.get(part.device, 0) + size
    return max(bytes_of.values())


if options.way:
    train()
    sys.exit()


def trained(way):
    """Return what a process found that trains one way."""
    found = separate_process.result("--way", way)
    print(way, found, flush=True)
    return found


WAYS = ("ordinary", "divided")
found = interleaved.rounds({way: functools.partial(trained, way) for way in WAYS}, options.rounds)
ordinary, divided = (found[way] for way in WAYS)
print(f"\n{ordinary[0]['parameters']:,} parameters, Adam, {options.replicas} replicas, float32\n")
print("| on each replica | ordinary | shard_optimizer | ratio |")
print("| --- | ---: | ---: | ---: |")
for key, name, unit in (
    ("weights", "weights, MB", 1e6),
    ("state", "optimizer's state, MB", 1e6),
    ("peak", "peak of memory, MB", 1e6),
    ("seconds", "step, ms", 1e-3),
):
    ratios = [b[key] / a[key] for a, b in zip(ordinary, divided, strict=True)]
    first, second = (
        statistics.median(one[key] for one in way) / unit for way in (ordinary, divided)
    )
    differ = max(ratios) > 1.01 * min(ratios)
    ratio = interleaved.spread(ratios) if differ else f"{statistics.median(ratios):.2f}"
    print(f"| {name} | {first:.0f} | {second:.0f} | {ratio} |")
