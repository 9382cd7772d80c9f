"""`SaveTrainingData`: write a run as a CSV file with a row per epoch."""

import csv
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import tensorflow as tf

from .._upstream.hooks import is_chief
from ..arguments import local_path
from ..errors import UserError
from ..files import atomic_path, explain_write_errors
from .print_throughput import can_count_images, count_images
from .resumable import Clock, TimedCallback

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


class SaveTrainingData(TimedCallback):
    """Writes a CSV file of a run, a row per epoch, as training proceeds.

    An interrupted run keeps the rows of its finished epochs. The columns are `epoch` (from 1),
    `seconds` (wall clock since training began, validation included), `images_per_sec` (from an
    earlier `PrintThroughput` in the list), `loss`, `accuracy`, `val_loss`, `val_accuracy`,
    `learning_rate` (of the next step), `replicas` and `global_batch` (images per step at the start
    of the epoch, if the model counts them). All further values in `logs` follow by name. Missing
    values are empty.

    A fit that begins at epoch 0 overwrites the file. A fit that begins later (`initial_epoch`,
    `Checkpoint`, `keras.callbacks.BackupAndRestore`) keeps the rows of the earlier epochs, and
    replaces the rows of epochs that are trained again; `seconds` continues. The file is replaced as
    a whole, so a killed process leaves no incomplete row. A value that is new in a later epoch adds
    a column; `keras.callbacks.CSVLogger` does not add columns.

    Args:
        path: The file. Its folder has to exist.
        verbose: 1 prints the file's path at the end.
        clock: Returns the time in seconds, from any origin.

    Raises:
        UserError: The file cannot be written, before training or later; or the file that a resumed
            run finds is not from `SaveTrainingData`.

    Examples:
        ```python
        model.fit(train, epochs=40, callbacks=[SaveTrainingData("batch_64.csv")])
        ```
    """

    initial_state: ClassVar[Mapping[str, Any]] = {"seconds": 0.0, "global_batch": 0}
    global_batch: int

    def __init__(
        self,
        path: str | os.PathLike[str] = "training.csv",
        *,
        verbose: int = 1,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.path = local_path("path", path)
        self.rows: list[dict[str, str]] = []
        self._has_begun = self._is_resumed = self._can_count_images = False
        super().__init__(verbose=verbose, clock=clock)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reject a file that cannot be written, before the first epoch."""
        self._is_resumed, self._has_begun = self._has_state_to_resume, False
        super().on_train_begin(logs)
        self._can_count_images = can_count_images(self.model)
        if not is_chief(self.model):  # all workers count the images, and only the chief writes
            return
        hint = "pass a path that can be written, in a folder that exists"
        with (
            explain_write_errors(Path(self.path), hint=hint),
            open(self.path, "a", encoding="utf-8"),
        ):
            pass

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Start the table, or continue the existing table."""
        super().on_epoch_begin(epoch, logs)
        if self._has_begun or not is_chief(self.model):
            return
        self._has_begun = True
        self.rows = [row for row in self._read() if int(row["epoch"]) <= epoch] if epoch else []
        if self.rows and not self._is_resumed:
            self._start_time -= float(self.rows[-1]["seconds"])
        self._write()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Record the images per step of the epoch's first execution."""
        super().on_train_batch_end(batch, logs)
        if not self.global_batch and self._can_count_images:
            self.global_batch = math.ceil(
                count_images(self.model) / self.steps_of_epoch_after(batch)
            )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        rate = tf.convert_to_tensor(self.model.optimizer.learning_rate)
        logs = logs or {}
        values = logs | {
            "epoch": epoch + 1,
            "seconds": f"{self.seconds:.3f}",
            "images_per_sec": f"{logs['images_per_sec']:.1f}" if "images_per_sec" in logs else "",
            "learning_rate": float(rate),
            "replicas": self.model.distribute_strategy.num_replicas_in_sync,
            "global_batch": self.global_batch or "",
        }
        self.global_batch = 0  # for the next epoch
        if not is_chief(self.model):
            return
        self.rows.append({name: str(value) for name, value in values.items()})
        self._write()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.print_line(f"Training history: {self.path}")
        super().on_train_end(logs)

    def _read(self) -> list[dict[str, str]]:
        with open(self.path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = list(reader.fieldnames or ())
            if columns and columns[: len(COLUMNS)] != list(COLUMNS):
                raise UserError(
                    f"{self.path} does not begin with the columns of SaveTrainingData, so a resumed"
                    " run cannot add rows: pass another path, or the file of the resumed run"
                )
            return list(reader)

    def _write(self) -> None:
        """Rewrite the whole file: an epoch may log a value for which the file has no column yet."""
        added = {name for row in self.rows for name in row} - set(COLUMNS)
        with (
            explain_write_errors(Path(self.path), hint="free disk space, or pass another path"),
            atomic_path(Path(self.path)) as part,
            open(part, "w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, [*COLUMNS, *sorted(added)])
            writer.writeheader()
            writer.writerows(self.rows)
