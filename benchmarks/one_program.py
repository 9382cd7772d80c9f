"""The step as one program, compared with Keras's step on each replica: first and later steps.

    python benchmarks/one_program.py                     # all models, 1, 2 and 8 replicas: an hour
    python benchmarks/one_program.py --model wrn --replicas 2 --rounds 3     # three minutes

`kdist.MirroredStrategy` runs the one, `kdist.MultiWorkerMirroredStrategy`, here with one worker,
the other. Each model is trained by both in turn, every time in a process of its own. Prints the
median ratio of the rounds and its range: of the first step's processor time, which other work on
the machine hardly changes, and of the clock's time of a later step; then the share of operations
that each replica computes for the whole batch.
"""

import argparse
import itertools
import json
import statistics
import time
from typing import Any

import separate_process

MODELS = ("wrn", "mobilenet", "transformer")
KINDS = ("each replica", "one program")
STEPS = 12


def main() -> None:
    """Print the table, or with `--only` the figures of one candidate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--replicas", nargs="+", type=int, default=(1, 2, 8))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(_figures(options.only, options.model[0], options.replicas[0])))
        return
    print("| model | replicas | first step (processor) | later step | computed whole |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for model in options.model:
        for replicas in options.replicas:
            print(_row(model, replicas, options.rounds), flush=True)


def _row(model: str, replicas: int, rounds: int) -> str:
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for turn in range(rounds):
        for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
            arguments = ("--only", kind, "--model", model, "--replicas", str(replicas))
            found[kind].append(separate_process.result(*arguments))
    before, now = found.values()
    cells = [
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        for figure in ("first", "later")
        for ratios in [[b[figure] / a[figure] for a, b in zip(before, now, strict=True)]]
    ]
    return f"| {model} | {replicas} | {' | '.join(cells)} | {now[0]['whole']:.2%} |"


def _figures(kind: str, name: str, replicas: int) -> dict[str, float]:
    """Train for an epoch; return seconds of the first and of a later step, and the share whole."""
    import kdist
    import keras
    import numpy as np
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.set_visible_devices([], "GPU")
    program = kind == "one program"
    made = kdist.MirroredStrategy if program else kdist.MultiWorkerMirroredStrategy
    strategy = made(replicas=replicas)
    model, shape, batch = strategy.build(lambda: _model(name)), _SHAPES[name], 64
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    x = np.random.default_rng(0).uniform(size=(batch * STEPS, *shape)).astype("float32")
    times: list[tuple[float, float]] = []

    def note(*_: Any, **__: Any) -> None:
        times.append((time.perf_counter(), time.process_time()))

    clock = keras.callbacks.LambdaCallback(on_train_begin=note, on_train_batch_end=note)
    model.fit(x, np.zeros(len(x)), batch_size=batch, verbose=0, callbacks=[clock])
    later = [b[0] - a[0] for a, b in itertools.pairwise(times[2:])]
    divided = strategy.explanations[-1] if program and strategy.explanations else None
    whole = sum(count for _, _, count in divided.whole) / divided.operations if divided else 0.0
    return {"first": times[1][1] - times[0][1], "later": statistics.median(later), "whole": whole}


_SHAPES = {"wrn": (28, 28, 1), "mobilenet": (32, 32, 3), "transformer": (32, 64)}


def _model(name: str) -> Any:
    import keras
    from kdist.models import WideResNet

    layers = keras.layers
    if name == "wrn":
        return WideResNet(depth=16, width=1, input_shape=_SHAPES[name], classes=10)
    if name == "mobilenet":
        return keras.applications.MobileNetV2(
            alpha=0.35, input_shape=_SHAPES[name], weights=None, classes=10
        )
    x = inputs = keras.Input(_SHAPES[name])
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 16, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(x + attended)
        dense = layers.Dense(64)(layers.Dense(256, activation="gelu")(x))
        x = layers.LayerNormalization()(x + layers.Dropout(0.1)(dense))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


if __name__ == "__main__":
    main()
