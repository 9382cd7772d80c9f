"""The time of the first epoch, of two steps, of a deep model with synchronized batch norm.

    python benchmarks/first_fit.py          # MobileNetV2 and ResNet50, two and four replicas
    python benchmarks/first_fit.py --model mobilenet --replicas 2

Nearly all of it is spent tracing the step. Compares kdist's `strategy.build` with stock Keras under
`tf.distribute.MirroredStrategy` and layers with `synchronized=True`, in turn, each in a separate
process. Prints the seconds of `fit`, of the clock and of the processor, and the ratio of the
processor's, which other work on the machine hardly changes. Stock Keras is ended after
`--limit-minutes`: its row then says more than so many seconds, and the ratio is an upper bound.
"""

import argparse
import json
import subprocess
import time
from typing import Any

import separate_process

MODELS = ("mobilenet", "resnet")


def main() -> None:
    """Print the table, or with `--only` the seconds of one candidate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--replicas", nargs="+", type=int, default=(2, 4))
    parser.add_argument("--limit-minutes", type=float, default=30)
    parser.add_argument("--only", choices=("stock", "kdist"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(_seconds(options.only, options.model[0], options.replicas[0])))
        return
    print("| first fit: seconds (of the processor) | stock | kdist | kdist : stock |")
    print("| --- | --- | --- | --- |", flush=True)
    for model in options.model:
        for replicas in options.replicas:
            print(_row(model, replicas, options.limit_minutes), flush=True)


def _row(model: str, replicas: int, limit_minutes: float) -> str:
    arguments = ("--model", model, "--replicas", str(replicas))
    name, limit = f"{model}, {replicas} replicas", limit_minutes * 60
    clock, processor = separate_process.result("--only", "kdist", *arguments)
    kdist = f"{clock:.1f} ({processor:.1f})"
    try:
        stock = separate_process.result("--only", "stock", *arguments, timeout_seconds=limit)
    except subprocess.TimeoutExpired:
        return f"| {name} | over {limit:.0f} | {kdist} | below {clock / limit:.2f} |"
    return f"| {name} | {stock[0]:.1f} ({stock[1]:.1f}) | {kdist} | {processor / stock[1]:.2f} |"


def _seconds(kind: str, name: str, replicas: int) -> tuple[float, float]:
    """Return the seconds of the first `fit`: of the clock, and of the processor."""
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
    start, processor = time.perf_counter(), time.process_time()
    model.fit(x, y, batch_size=8, verbose=0)
    return time.perf_counter() - start, time.process_time() - processor


if __name__ == "__main__":
    main()
