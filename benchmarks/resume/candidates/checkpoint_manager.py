"""`tf.train.CheckpointManager`, as TensorFlow's guide on checkpoints uses it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .base import ARRAYS, Candidate, Values, filled


class ManagerValues(Values):
    """Variables."""

    def __init__(self, folder: Path) -> None:
        import tensorflow as tf

        self._folder = folder
        self._variables = {name: tf.Variable(tf.zeros(shape)) for name, shape in ARRAYS.items()}
        self._checkpoint = tf.train.Checkpoint(**self._variables)
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(folder), max_to_keep=3)

    def save(self, number: int) -> None:
        """Save by the manager."""
        for name, array in filled(number).items():
            self._variables[name].assign(array)
        self._manager.save(checkpoint_number=number)

    def restore(self) -> dict[str, np.ndarray] | None:
        """Restore the latest that the manager knows."""
        latest = self._manager.latest_checkpoint
        if latest is None:
            return None
        self._checkpoint.restore(latest).assert_consumed()
        return {name: variable.numpy() for name, variable in self._variables.items()}

    def strays(self) -> list[str]:
        """All that is of no checkpoint that the manager knows."""
        kept = [Path(one).name for one in self._manager.checkpoints]
        return sorted(
            path.name
            for path in self._folder.iterdir()
            if path.name != "checkpoint" and path.name.partition(".")[0] not in kept
        )

    @staticmethod
    def newest(folder: Path) -> list[Path]:
        """Index, data and the file that points to them."""
        newest = max(int(p.stem.rpartition("-")[2]) for p in folder.glob("*.index"))
        return [folder / "checkpoint", *sorted(folder.glob(f"ckpt-{newest}.*"))]


class CheckpointManager(Candidate):
    """TensorFlow's own."""

    title = "tf.train.CheckpointManager"
    values = ManagerValues

    def callback(self, folder: Path, model: Any) -> tuple[Any, int]:
        """Save at the end of an epoch."""
        import keras
        import tensorflow as tf

        epoch = tf.Variable(0)
        model.optimizer.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epoch=epoch)
        manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=3)
        if manager.latest_checkpoint:
            checkpoint.restore(manager.latest_checkpoint).expect_partial()

        def save(number: int, _: Any) -> None:
            epoch.assign(number + 1)
            manager.save()

        return keras.callbacks.LambdaCallback(on_epoch_end=save), int(epoch.numpy())

    def saves(self, folder: Path, model: Any) -> tuple[Callable[[], None], Callable[[], None]]:
        """Save model and optimizer."""
        import tensorflow as tf

        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=3)
        return lambda: manager.save(), lambda: None
