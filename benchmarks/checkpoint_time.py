"""How long a save stops training: `Checkpoint` beside Keras's and TensorFlow's ways to save.

    python -m benchmarks.checkpoint_time        # 15 saves each: ten minutes on two cores

The candidates save a WideResNet-16-4 with momentum and averaged weights, 33 MB, in turn, during a
training with batches of 8. Prints the milliseconds of the callback's call, and the milliseconds of
the training thread's own work, which do not depend on other programs.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from kdist.callbacks import Checkpoint

from .measure import Table, format_spread, make_parser
from .networks import make_model, make_momentum_sgd, make_wide_resnet

BATCH = 8
STEPS_BETWEEN = 8
"""Steps from one candidate's save to the next one's, longer than a background thread writes."""


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--saves", type=int, default=15, help="of each candidate")
    options = parser.parse_args()
    network = make_wide_resnet(16, 4)._replace(optimizer=averaged_momentum)
    model = make_model(network)
    model.optimizer.build(model.trainable_variables)
    with tempfile.TemporaryDirectory(prefix="kdist-checkpoints-") as name:
        folder = Path(name)
        backup = keras.callbacks.BackupAndRestore(str(folder / "keras"), double_checkpoint=True)
        backup.set_model(model)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        manager = tf.train.CheckpointManager(checkpoint, str(folder / "tf"), max_to_keep=3)
        peers: dict[str, Callable[[], Any]] = {
            "BackupAndRestore": lambda: backup.on_epoch_end(0),
            "tf.train.CheckpointManager": manager.save,
        }
        cycle = STEPS_BETWEEN * (1 + len(peers))
        timers: dict[str, Any] = {"kdist": TimedCheckpoint(folder / "kdist", cycle)}
        for turn, (title, save) in enumerate(peers.items(), 1):
            timers[title] = SaveTimer(save, cycle, STEPS_BETWEEN * turn)
        x, y = network.random_samples(BATCH * cycle * (2 + options.saves))
        model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=list(timers.values()))
    table = Table("33 MB", "stall of a save, ms", "own work, ms", file=options.json)
    for title, timer in timers.items():
        # The first save makes files and memory for all later saves.
        saves = timer.seconds[1 : 1 + options.saves]
        wall, work = ([1000 * value for value in column] for column in zip(*saves, strict=True))
        table.add(title, format_spread(wall, ".0f"), f"{statistics.median(work):.0f}")


def averaged_momentum() -> Any:
    """Return SGD with momentum and averaged weights."""
    return keras.optimizers.SGD.from_config(make_momentum_sgd().get_config() | {"use_ema": True})


class TimedCheckpoint(Checkpoint):
    """Saves at the end of each cycle of steps, and takes the time."""

    def __init__(self, folder: Path, cycle: int) -> None:
        super().__init__(folder, every_seconds=None, every_steps=cycle, verbose=0)
        self._cycle = cycle
        self.seconds: list[tuple[float, float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Take the time of a step that saves."""
        seconds = time_save(lambda: super(TimedCheckpoint, self).on_train_batch_end(batch, logs))
        if (batch + 1) % self._cycle == 0:
            self.seconds.append(seconds)


class SaveTimer(keras.callbacks.Callback):
    """Lets another candidate save in its turn of each cycle, and takes the time."""

    def __init__(self, save: Callable[[], Any], cycle: int, turn: int) -> None:
        super().__init__()
        self._save, self._cycle, self._turn = save, cycle, turn
        self.seconds: list[tuple[float, float]] = []

    def get_state(self) -> dict[str, Any]:
        """Return nothing; `Checkpoint` asks for a state."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on without a state."""

    def on_train_batch_end(self, batch: int, *_: object, **__: object) -> None:
        """Save, if it is this candidate's turn."""
        if (batch + 1) % self._cycle == self._turn:
            self.seconds.append(time_save(self._save))


def time_save(save: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of a call by the clock, and of this thread's work."""
    start = time.perf_counter(), time.thread_time()
    save()
    return time.perf_counter() - start[0], time.thread_time() - start[1]


if __name__ == "__main__":
    main()
