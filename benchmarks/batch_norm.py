"""The cost of `BatchNormMonitor`.

    python -m benchmarks.batch_norm                  # WRN-16-1, batch 128: two minutes

The monitor works once an epoch. Its time is given in training steps of WRN-16-1 in the same round.
"""

import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import kdist
from kdist.callbacks import BatchNormMonitor

from .measure import format_spread, make_parser, make_timer, take_turns
from .networks import fit_epoch, make_model, make_wide_resnet, random_batches

EPOCH_IMAGES = 60_000


def main() -> None:
    """Print the cost."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="training steps per round")
    parser.add_argument("--batch", type=int, default=128, help="global batch")
    options = parser.parse_args()
    steps = measure_monitor(options.batch, options.steps, options.rounds)
    share = 100 * statistics.median(steps) * options.batch / EPOCH_IMAGES
    cost = f"{format_spread(steps)} steps per epoch, {share:.2f} % of {EPOCH_IMAGES} images"
    print(f"BatchNormMonitor: {cost}")


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
