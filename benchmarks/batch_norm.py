"""kdist's synchronized batch norm beside Keras's, and the cost of `BatchNormMonitor`.

    python -m benchmarks.batch_norm                  # layers of WRN-16-1, batch 128: five minutes

The candidates are timed in turn in one process, A B B A …. Ratios are computed round by round;
above 1, kdist's layer is faster. The monitor works once an epoch; its time is given in training
steps of WRN-16-1 in the same round.
"""

import os
import statistics
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import kdist
import keras
import tensorflow as tf
from kdist.callbacks import BatchNormMonitor
from kdist.layers import SyncBatchNormalization

from .measure import Table, format_ratio, format_spread, make_parser, make_timer, take_turns
from .networks import fit_epoch, make_model, make_wide_resnet, random_batches

EPOCH_IMAGES = 60_000
SHAPES = ((28, 28, 16), (14, 14, 32), (7, 7, 64))  # of the layers of WRN-16-1


def main() -> None:
    """Print both tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="training steps per round")
    parser.add_argument("--batch", type=int, default=128, help="global batch")
    options = parser.parse_args()
    table = Table("layer", "Keras, ms", "kdist, ms", "kdist : Keras", file=options.json)
    for shape in SHAPES:
        candidates = {
            "Keras": make_layer_step(keras.layers.BatchNormalization(), (options.batch, *shape)),
            "kdist": make_layer_step(SyncBatchNormalization(), (options.batch, *shape)),
        }
        take_turns(candidates, 2)  # warms them up
        times = take_turns(candidates, options.rounds)
        milliseconds = [f"{1000 * statistics.median(times[name]):.1f}" for name in candidates]
        ratio = format_ratio(times["Keras"], times["kdist"])
        table.add("x".join(map(str, shape)), *milliseconds, ratio)
    steps = measure_monitor(options.batch, options.steps, options.rounds)
    share = 100 * statistics.median(steps) * options.batch / EPOCH_IMAGES
    cost = f"{format_spread(steps)} steps per epoch, {share:.2f} % of {EPOCH_IMAGES} images"
    print(f"\nBatchNormMonitor: {cost}")


def make_layer_step(layer: Any, shape: tuple[int, ...]) -> Callable[[], float]:
    """Return the forward and backward pass of a layer as a timed function."""
    x, dy = tf.random.normal((2, *shape))
    layer.build(x.shape)

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return tape.gradient(y, [x, *layer.trainable_variables], dy)

    return make_timer(lambda: step()[0].numpy())


def measure_monitor(batch: int, steps: int, rounds: int) -> list[float]:
    """Return in each round how many training steps the monitor's work takes."""
    network = make_wide_resnet(16, 1)
    model = make_model(network, kdist.MirroredStrategy(replicas=1))
    data = random_batches(network, batch, steps)
    monitor = BatchNormMonitor(batch=next(data.as_numpy_iterator()), verbose=0)
    monitor.set_model(model)
    monitor.on_train_begin()
    candidates = {
        "steps": lambda: fit_epoch(model, data).seconds,
        "monitor": make_timer(lambda: monitor.on_epoch_end(0, {})),
    }
    take_turns(candidates, 2)  # warms them up
    times = take_turns(candidates, rounds)
    return [steps * b / a for a, b in zip(times["steps"], times["monitor"], strict=True)]


if __name__ == "__main__":
    main()
