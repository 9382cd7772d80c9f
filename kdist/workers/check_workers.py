"""`kdist launch -m kdist.workers.check_workers`: check that workers connect and train one model."""

import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from ..errors import TrainingError
from ..versions import versions
from .multi_worker_strategy import MultiWorkerMirroredStrategy

_ROUNDS = 10
_MEGABYTES = 16
_FEATURES = 8
# Rounding error of float32 sums in a different order.
_TOLERANCE = 1e-5


def check_workers() -> None:
    """Check connections, sums and training of all workers; the chief prints a line per check."""
    began = time.perf_counter()
    strategy = MultiWorkerMirroredStrategy()

    def print_line(line: str) -> None:
        if strategy.is_chief:
            print(line, flush=True)

    print_line(
        f"{strategy.workers} workers found each other after {time.perf_counter() - began:.1f} s:"
        f" {strategy.num_replicas_in_sync} replicas, on this worker {', '.join(strategy.devices)}"
    )
    shared = ", ".join(f"{name} {version}" for name, version in versions().items())
    print_line(f"same versions on all workers: {shared}")
    small, large = (_all_reduce_seconds(strategy, count) for count in (1, _MEGABYTES * 250_000))
    print_line(
        f"all-reduce: {1000 * small:.2f} ms for 4 bytes, {1000 * large:.1f} ms for"
        f" {_MEGABYTES} MB ({_MEGABYTES / 1000 / large:.2f} GB/s)"
    )
    difference = _difference_from_one_replica(strategy)
    if not difference <= _TOLERANCE:
        raise TrainingError(
            f"after two training steps, the weights differ by {difference:.1g} from those of one"
            " replica, by more than rounding: please report this with the lines above"
        )
    print_line(f"two training steps: same weights as one replica, up to {difference:.0e}")


def _all_reduce_seconds(strategy: MultiWorkerMirroredStrategy, count: int) -> float:
    """Return the median time to add up `count` float32 numbers over all replicas."""
    collectives = strategy.collectives()

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        parts = []
        for device, place in zip(collectives.devices, collectives.places, strict=True):
            with tf.device(device):
                parts.append(tf.fill((count,), place + 1.0))
        return collectives.sum_all([parts])[0][0]

    seconds = []
    for _ in range(_ROUNDS + 1):  # the first round traces
        start = time.perf_counter()
        total = step().numpy()
        seconds.append(time.perf_counter() - start)
    replicas = strategy.num_replicas_in_sync
    expected = replicas * (replicas + 1) / 2
    if not (total == expected).all():
        raise TrainingError(
            f"the sum over {replicas} replicas is {total[0]:g}, expected {expected:g}: the network"
            " or its drivers change data"
        )
    return statistics.median(seconds[1:])


def _difference_from_one_replica(strategy: MultiWorkerMirroredStrategy) -> float:
    """Return the largest difference of weights after two steps, with and without the strategy.

    The second batch does not divide evenly over the replicas.
    """

    def make() -> keras.Model:
        layers = [keras.Input((_FEATURES,)), keras.layers.Dense(16)]
        layers += [keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        return keras.Sequential(layers)

    batch = 4 * strategy.num_replicas_in_sync
    draw = np.random.default_rng(0)
    x = draw.normal(size=(2 * batch - 1, _FEATURES)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    alone, together = make(), strategy.build(make)
    start = [draw.normal(size=weight.shape).astype("float32") for weight in alone.trainable_weights]
    for model in (alone, together):
        for weight, value in zip(model.trainable_weights, start, strict=True):
            weight.assign(value)
        model.compile(keras.optimizers.SGD(0.01), "mse")
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    pairs = zip(alone.get_weights(), together.get_weights(), strict=True)
    return max(float(np.max(np.abs(weight - expected))) for expected, weight in pairs)


if __name__ == "__main__":
    check_workers()
