"""The program of every worker in `kills.py`: a small training, saved every few steps.

`python killed_training.py FOLDER EPOCHS STEPS SHARDS WORKER STEP`: an epoch has STEPS steps, a
batch SHARDS shards (0 for none); in step STEP, counted from 1, worker WORKER raises an error,
unless it was started again; -1 for no error.
"""

import os
import sys
from pathlib import Path

import kdist
import keras
import numpy as np
from kdist.callbacks import Checkpoint


class Steps(keras.callbacks.Callback):
    """Prints each step of this process, and fails where it was told to."""

    on_chief_only = False
    stops_in_epoch = False

    def __init__(self, fails_at):
        super().__init__()
        self.fails_at, self.step = fails_at, 0

    def get_state(self):
        """Nothing is to be saved."""
        return {}

    def set_state(self, state):
        """Counts the steps of its own process."""

    def on_train_batch_end(self, *_, **__):
        """Count the step."""
        self.step += 1
        print("step", os.environ["KDIST_RESTART_COUNT"], os.getpid(), self.step, flush=True)
        if self.step == self.fails_at:
            raise RuntimeError("a mistake of mine")


def network():
    """Make the model."""
    return keras.Sequential(
        [
            keras.Input((16,)),
            keras.layers.Dense(32),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(4),
        ]
    )


def main(folder: Path, epochs: int, steps: int, shards: int, worker: int, fails_at: int) -> None:
    """Train, and save the weights and the history."""
    strategy = kdist.MultiWorkerMirroredStrategy(shards=shards or None)
    keras.utils.set_random_seed(1)
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(16 * steps, 16)).astype("float32"), draws.integers(0, 4, 16 * steps)
    model = strategy.build(network)
    with strategy.scope():
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)
        model.compile(optimizer, loss, metrics=["accuracy"])
    is_first = os.environ["KDIST_RESTART_COUNT"] == "0"
    fails = is_first and strategy.worker == worker
    # The chief alone has the folder.
    own = folder / "checkpoints" if strategy.is_chief else "/dev/null/none"
    history = model.fit(
        x,
        y,
        batch_size=16,
        epochs=epochs,
        validation_data=(x[:64], y[:64]),
        verbose=0,
        callbacks=[Steps(fails_at if fails else -1), Checkpoint(own, every_steps=3, verbose=0)],
    )
    if strategy.is_chief:
        values = {str(i): value for i, value in enumerate(model.get_weights())}
        values |= {f"history/{name}": np.array(v) for name, v in history.history.items()}
        np.savez(folder / "trained.npz", **values)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
