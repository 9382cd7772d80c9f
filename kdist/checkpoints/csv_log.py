"""`CSVLog`: the file of a `keras.callbacks.CSVLogger`, as it was at a checkpoint."""

import os
from collections.abc import Mapping
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
        return {"size": os.path.getsize(self._logger.filename), "keys": self._logger.keys}

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Remove the rows that are written again, before `on_train_begin` opens the file."""
        path = self._logger.filename
        if os.path.exists(path) and os.path.getsize(path) >= state["size"]:
            os.truncate(path, state["size"])
        self._logger.append = True

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with the same columns, without a second header."""
        self._logger.keys = state["keys"]
        self._logger.append = self._append
