"""`SharedStore`: the chief's store, out of which all workers are given what they restore."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from .generation import Generation
from .options import Resume
from .store import CheckpointStore, Found, generations
from .workers import Workers


class SharedStore:
    """The generations of a training, in a folder that the chief alone uses.

    Args:
        folder: Made where it is missing.
        workers: Of the training, which make this together.
        keep: How many generations are kept.
        announce: Called on the chief with one line for each thing that the user should know.

    Raises:
        UserError: On all workers, if the chief cannot use the folder.
    """

    def __init__(
        self, folder: Path, workers: Workers, *, keep: int, announce: Callable[[str], None]
    ) -> None:
        self._folder, self._workers = folder, workers
        self._store: CheckpointStore | None = None

        def use() -> None:
            self._store = CheckpointStore(folder, keep=keep, announce=announce)

        workers.of_chief("the folder of the checkpoints", use)

    def close(self) -> None:
        """Let other processes use the folder."""
        if self._store is not None:
            self._store.close()

    def find(self, resume: Resume) -> Found | None:
        """Return what is to be resumed, as `newest` does.

        Args:
            resume: `"must"` requires a generation, `"never"` requires that there is none. The
                chief's counts.

        Raises:
            UserError: On all workers; there is none, or one.
        """
        resume = self._workers.of_chief("whether to resume", lambda: resume)
        if resume == "never":
            self._workers.of_chief("the check for checkpoints", self._check_none)
            return None
        found = self.newest()
        if found is None and resume == "must":
            raise UserError(
                f'resume is "must", but {self._folder} has no checkpoint: pass the folder of the'
                ' training to resume, or resume="auto"'
            )
        return found

    def newest(self) -> Found | None:
        """Return on all workers the newest whole generation of the chief's, or `None`.

        Raises:
            UserError: On all workers, as `CheckpointStore.newest` does.
        """
        found = None

        def find() -> dict[str, Any] | None:
            nonlocal found
            found = self._store.newest() if self._store is not None else None
            return None if found is None else _described(found[0])

        about = self._workers.of_chief("the newest checkpoint", find)
        if about is None or self._workers.count == 1:
            return found
        of_chief = Generation(**{**about["is"], "path": Path(about["path"])})
        if found is not None:
            self._workers.send_file(of_chief.path, about["size"])
            return found
        with tempfile.TemporaryDirectory() as own:
            copy = Generation(**about["is"], path=Path(own) / of_chief.path.name)
            self._workers.send_file(copy.path, about["size"])
            return of_chief, *copy.read()

    def commit(
        self, *, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> None:
        """Write a generation, as `CheckpointStore.commit` does, if this is the chief."""
        if self._store is not None:
            self._store.commit(epoch=epoch, batch=batch, arrays=arrays, state=state)

    def check_room(self, size: int) -> None:
        """Check on the chief that the disk can take a generation.

        Args:
            size: Its bytes.

        Raises:
            UserError: On all workers, if it cannot.
        """

        def check() -> None:
            if self._store is not None:
                self._store.check_room(size)

        self._workers.of_chief("the check of the disk", check)

    def _check_none(self) -> None:
        there = generations(self._folder)
        if there:
            raise UserError(
                f'resume is "never", but {self._folder} has checkpoints, the newest'
                f' {there[0].path.name}: pass another folder, or resume="auto"'
            )


def _described(generation: Generation) -> dict[str, Any]:
    about = {"epoch": generation.epoch, "batch": generation.batch, "digest": generation.digest}
    return {"is": about, "path": str(generation.path), "size": generation.size}
