"""`kdist.callbacks.Checkpoint`, and the store that it writes to."""

from pathlib import Path
from typing import Any

import numpy as np

from .base import Candidate, Values, filled


class KdistValues(Values):
    """Generations of `CheckpointStore`."""

    def __init__(self, folder: Path) -> None:
        from kdist.checkpoint.store import CheckpointStore

        self._store = CheckpointStore(folder, announce=lambda _: None)

    def save(self, number: int) -> None:
        """Commit a checkpoint."""
        self._store.commit(epoch=number, batch=0, arrays=filled(number), state={})

    def restore(self) -> dict[str, np.ndarray] | None:
        """Return the newest whole checkpoint's arrays."""
        found = self._store.newest()
        return None if found is None else found[1]

    def strays(self) -> list[str]:
        """All besides three checkpoints and the lock."""
        from kdist.checkpoint import checkpoint_files

        folder = self._store.folder
        whole = {one.path for one in checkpoint_files(folder)[:4]}  # killed before one was removed
        there = {path for path in folder.iterdir() if path.name != ".lock"}
        return sorted(path.name for path in there - whole)

    @staticmethod
    def newest(folder: Path) -> list[Path]:
        """One file."""
        return sorted(folder.glob("*.safetensors"))[-1:]


class KdistCheckpoint(Candidate):
    """kdist."""

    title = "kdist"
    values = KdistValues

    def callback(self, folder: Path, model: Any) -> tuple[Any, int]:  # noqa: ARG002
        """Save after every second step."""
        from kdist.callbacks import Checkpoint

        return Checkpoint(folder, every_steps=2, verbose=0), 0
