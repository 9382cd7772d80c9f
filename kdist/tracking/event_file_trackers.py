"""Base classes of trackers that write an event file of TensorBoard."""

from pathlib import Path
from typing import Any, ClassVar

import tensorflow as tf

from .event_files import last_step
from .tracker import Tracker


class EventFileTracker(Tracker):
    """Base class of trackers with a writer of TensorBoard's, which they make in `begin`."""

    _writer: Any = None

    def flush(self) -> None:
        """Have on the disk what was written so far."""
        self._writer.flush()

    def close(self, exit_code: int) -> None:  # noqa: ARG002 - as in `Tracker`
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class SeparateRun(EventFileTracker):
    """Base class of trackers that write steps into a run of their own.

    TensorBoard reads only one file of a run at a time.

    Attributes:
        run: The run's name.
        folder: TensorBoard's folder; a subclass sets it.
    """

    run: ClassVar[str]
    folder: Path
    _written = -1

    def begin(self) -> list[Any]:
        """Open the file."""
        folder = self.folder / self.run
        self._written = last_step(folder) if self.continues else -1
        self._writer = tf.summary.create_file_writer(str(folder))
        return []

    def is_new_step(self, step: int) -> bool:
        """Whether no file has this step."""
        return step > self._written
