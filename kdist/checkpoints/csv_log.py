"""`CSVLog`: the file of a `keras.callbacks.CSVLogger`, as it was at a checkpoint."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras


class CSVLog:
    """Continues a `CSVLogger`'s file behind the last row that belongs to a checkpoint.

    Args:
        logger: The callback.
    """

    def __init__(self, logger: keras.callbacks.CSVLogger) -> None:
        self._logger = logger
        self._append = logger.append

    def state(self) -> dict[str, Any]:
        """Return the file's size in bytes, and its columns."""
        return {"size": self._size(), "keys": self._logger.keys}

    def prepare(self, state: Mapping[str, Any]) -> str | None:
        """Remove the rows that are written again, before `on_train_begin` opens the file.

        Returns:
            A line if rows that were written are not there, as the file was removed or cut short.
        """
        path = Path(self._logger.filename)
        content = path.read_bytes() if path.exists() else None
        self._logger.append = True
        if content is not None:
            # A machine that has lost power may have left a part of a row.
            os.truncate(path, min(state["size"], content.rfind(b"\n") + 1))
        if len(content or b"") >= state["size"]:
            return None
        is_short = "no longer there" if content is None else "shorter than it was"
        return (
            f"{path}, the file of CSVLogger, is {is_short} at the checkpoint: it gets the rows of"
            " the epochs from now on; the earlier ones are in the history that fit returns"
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the same columns, without a second header."""
        self._logger.keys = state["keys"]
        self._logger.append = self._append

    def _size(self) -> int:
        """Of what the callback writes to, though it may have been removed meanwhile."""
        file = self._logger.csv_file
        if file is not None and not file.closed:
            return os.fstat(file.fileno()).st_size
        return os.path.getsize(self._logger.filename)
