"""The time of the first epoch, of two steps, of a deep model with synchronized batch norm.

    python benchmarks/first_fit.py          # MobileNetV2 and ResNet50, two and four replicas
    python benchmarks/first_fit.py --model small --rounds 3     # a tiny network: two minutes

Nearly all of it is spent tracing the step. Compares kdist's `strategy.build` with stock Keras under
`tf.distribute.MirroredStrategy` and layers with `synchronized=True`, in turn, each in a separate
process, `--rounds` times. Prints the median seconds of `fit`, of the clock and of the processor,
and the ratio of the processor's, which other work on the machine hardly changes. A `fit` is ended
after `--limit-minutes`: its cell is then "over" so many seconds, and the ratio an upper bound.
"""

import argparse
import json
import signal
import statistics
import subprocess
import time
from typing import Any

import separate_process

DEEP = ("mobilenet", "resnet")


def main() -> None:
    """Print the table, or with `--only` the seconds of one candidate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=(*DEEP, "small"), default=DEEP)
    parser.add_argument("--replicas", nargs="+", type=int, default=(2, 4))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit-minutes", type=float, default=30)
    parser.add_argument("--only", choices=("stock", "kdist"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        limit = round(options.limit_minutes * 60)
        print(json.dumps(_seconds(options.only, options.model[0], options.replicas[0], limit)))
        return
    print("| first fit: seconds (of the processor) | stock | kdist | kdist : stock |")
    print("| --- | --- | --- | --- |", flush=True)
    for model in options.model:
        for replicas in options.replicas:
            print(_row(model, replicas, options.rounds, options.limit_minutes), flush=True)


def _row(model: str, replicas: int, rounds: int, limit_minutes: float) -> str:
    times: dict[str, list[tuple[float, float] | None]] = {"kdist": [], "stock": []}
    for turn in range(rounds):
        for kind in times if turn % 2 == 0 else reversed(times):
            if None not in times[kind]:  # once over the limit, it would be again
                times[kind].append(_seconds_of_process(kind, model, replicas, limit_minutes))
    limit = limit_minutes * 60
    kdist, stock = (_median(found) for found in times.values())
    if kdist is None:
        ratio = ""
    elif stock is None:
        ratio = f"below {kdist[0] / limit:.2f}"
    else:
        ratio = f"{kdist[1] / stock[1]:.2f}"
    cells = (
        f"over {limit:.0f}" if one is None else f"{one[0]:.1f} ({one[1]:.1f})"
        for one in (stock, kdist)
    )
    return f"| {model}, {replicas} replicas | {' | '.join(cells)} | {ratio} |"


def _seconds_of_process(
    kind: str, model: str, replicas: int, limit_minutes: float
) -> tuple[float, float] | None:
    """Return the result of `_seconds` in a process of its own; `None` if it took too long."""
    arguments = ("--only", kind, "--model", model, "--replicas", str(replicas))
    try:
        clock, processor = separate_process.result(
            *arguments, "--limit-minutes", str(limit_minutes)
        )
    except subprocess.CalledProcessError as error:
        if error.returncode != -signal.SIGALRM:
            raise
        return None
    return clock, processor


def _median(times: list[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [one for one in times if one is not None]
    if len(known) < len(times):
        return None
    return statistics.median(one[0] for one in known), statistics.median(one[1] for one in known)


def _seconds(kind: str, name: str, replicas: int, limit: int) -> tuple[float, float]:
    """Return the seconds of the first `fit`, of the clock and of the processor.

    After `limit` seconds of it, an alarm ends the process, wherever TensorFlow is.
    """
    import kdist
    import keras
    import numpy as np
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.set_visible_devices([], "GPU")
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    devices = [f"/cpu:{index}" for index in range(replicas)]

    def make() -> Any:
        options = {"input_shape": (32, 32, 3), "weights": None, "classes": 10}
        if name == "mobilenet":
            return keras.applications.MobileNetV2(alpha=0.35, **options)
        if name == "small":
            layers = [keras.Input(options["input_shape"]), keras.layers.Conv2D(4, 3)]
            layers += [keras.layers.BatchNormalization(), keras.layers.Flatten()]
            return keras.Sequential([*layers, keras.layers.Dense(10, activation="softmax")])
        return keras.applications.ResNet50(**options)

    def synchronized() -> Any:
        model = make()
        for layer in model.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.synchronized = True
        return model

    if kind == "stock":
        strategy = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
        with strategy.scope():
            model = synchronized()
    else:
        strategy = kdist.MirroredStrategy(devices)
        model = strategy.build(make)
    with strategy.scope():
        model.compile("sgd", "sparse_categorical_crossentropy")
    x, y = np.random.default_rng(0).uniform(size=(16, 32, 32, 3)).astype("float32"), np.zeros(16)
    signal.alarm(max(limit, 1))
    start, processor = time.perf_counter(), time.process_time()
    model.fit(x, y, batch_size=8, verbose=0)
    return time.perf_counter() - start, time.process_time() - processor


if __name__ == "__main__":
    main()
