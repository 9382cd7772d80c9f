"""A process that trains: one `fit`, which waits after every block of steps to be told to go on.

python -m benchmarks.workers.fit '{"replicas": 1, "batch": 64, "steps": 10}'
"""
# ruff: noqa: ARG002 - the names of arguments are Keras's

import json
import os
import sys
import time
from typing import Any

import kdist  # first, as for its users
import keras
import tensorflow as tf
from kdist.bench.workload import random_images
from kdist.models import WideResNet


class Blocks(keras.callbacks.Callback):
    """Times blocks of steps; before each, waits for a line of standard input."""

    stops_in_epoch = False

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.began = 0.0, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (batch + 1) % self.steps:
            return
        wall, own = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
        print(json.dumps({"seconds": wall, "processor_seconds": own}), flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        self.began = time.perf_counter(), time.process_time()


def main(replicas: int, batch: int, steps: int) -> None:
    """Train until standard input ends."""
    if "TF_CONFIG" in os.environ:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        strategy = kdist.MultiWorkerMirroredStrategy(replicas=replicas)
    else:
        strategy = kdist.MirroredStrategy(replicas=replicas)
    keras.utils.set_random_seed(0)
    model = strategy.build(
        lambda: WideResNet(depth=16, width=1, input_shape=(28, 28, 1), classes=10)
    )
    with strategy.scope():
        model.compile(
            keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
        )
    data = tf.data.Dataset.from_tensor_slices(random_images(batch)).batch(batch).repeat(100_000)
    model.fit(data, verbose=0, shuffle=False, callbacks=[Blocks(steps)])


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
