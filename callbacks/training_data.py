"""A run as a table: one line an epoch."""

import csv
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import tensorflow as tf

from ..errors import UserError
from .epoch_timing import EpochTiming
from .image_count import count_images
from .throughput_meter import Clock

COLUMNS = (
    "epoch",
    "seconds",
    "images_per_sec",
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "learning_rate",
    "replicas",
    "global_batch",
)


class SaveTrainingData(EpochTiming):
    """Writes a CSV file of a run, one line an epoch, so that an interrupted run leaves its table.

    The columns are `epoch` (from 1), `seconds` of the wall clock since training began (validation
    included), `images_per_sec` of the epoch's training part, `loss`, `accuracy`, `val_loss`,
    `val_accuracy`, `learning_rate` (the next step's), `replicas` and `global_batch` (images of the
    epoch's first step), then every other value that the first epoch has in `logs`, by name. What an
    epoch lacks is left empty.

    A new fit writes the file anew. A resumed one (`set_state`) adds to it, and `seconds` goes on.

    Args:
        path: The file. Its folder has to exist.
        total_images: Images that one epoch trains on; by default they are counted.
        verbose: 1 says at the end where the table is.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: If the file cannot be written, or a resumed run's file has no header.

    Example:
        ```python
        model.fit(train, epochs=40, callbacks=[SaveTrainingData("batch_64.csv")])
        ```
    """

    fresh_state: ClassVar[Mapping[str, Any]] = {**EpochTiming.fresh_state, "total_seconds": 0.0}
    total_seconds: float

    def __init__(
        self,
        path: str | os.PathLike[str] = "training.csv",
        total_images: int | None = None,
        *,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.path = os.fspath(path)
        self._columns: list[str] = []
        self._global_batch = 0
        super().__init__(total_images, verbose=verbose, clock=clock)

    def get_state(self) -> dict[str, Any]:
        """Return what `EpochTiming` does, and the seconds of the wall clock."""
        return super().get_state() | {"total_seconds": self.total_seconds}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin the file, or read the columns of the one that is gone on with."""
        resumed = self._resumed
        super().on_train_begin(logs)
        self._began = self.clock() - self.total_seconds
        self._columns = []
        try:
            if resumed and Path(self.path).exists():
                with open(self.path, newline="", encoding="utf-8") as file:
                    self._columns = next(csv.reader(file), [])
                if self._columns[: len(COLUMNS)] != list(COLUMNS):
                    raise UserError(
                        f"{self.path} does not begin with the columns of SaveTrainingData, so the"
                        " resumed run cannot add to it: pass another path, or the run's own file"
                    )
            else:
                Path(self.path).write_text("", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}; pass a path in a folder that exists"
            ) from error

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Take the size of the epoch's first step."""
        super().on_train_batch_end(batch, logs)
        if not self._global_batch and self.total_images is None:
            self._global_batch = math.ceil(count_images(self.model) / (batch + 1))

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forget the epoch before."""
        super().on_epoch_begin(epoch, logs)
        self._global_batch = 0

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the epoch's line."""
        super().on_epoch_end(epoch, logs)
        self.total_seconds = self.clock() - self._began
        row = (logs or {}) | {
            "epoch": epoch + 1,
            "seconds": f"{self.total_seconds:.3f}",
            "images_per_sec": "" if self.rate is None else f"{self.rate:.1f}",
            "learning_rate": float(tf.convert_to_tensor(self.model.optimizer.learning_rate)),
            "replicas": self.model.distribute_strategy.num_replicas_in_sync,
            "global_batch": self._global_batch or "",
        }
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            if not self._columns:
                self._columns = [*COLUMNS, *sorted(set(row) - set(COLUMNS))]
                csv.writer(file).writerow(self._columns)
            csv.DictWriter(file, self._columns, extrasaction="ignore").writerow(row)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Say where the table is."""
        self.say(f"Training data: {self.path}")
        super().on_train_end(logs)

    def _assign(self, state: Mapping[str, Any]) -> None:
        super()._assign(state)
        self.total_seconds = state["total_seconds"]
