"""Exchange between the workers of a training; the store and the writer of the chief."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import keras
import numpy as np

from .._upstream.hooks import hooks_of
from .._upstream.worker_devices import sum_over_workers
from ..errors import NonFiniteWeightsError, UserError
from ..signals import PreemptionSignals, Received
from .checkpoint_options import Resume
from .save_times import SaveTimes
from .store import CheckpointFile, CheckpointStore, Found, checkpoint_files

_Value = TypeVar("_Value")
_CHUNK = 1 << 24
"""Bytes per message when a file is sent: the extra memory that a worker needs."""


class Workers:
    """Exchange between the workers of a model; a single worker needs no communication.

    All workers must call the same methods in the same order. Attributes may be read at any time.

    Args:
        model: The model.

    Attributes:
        count: Number of workers.
        is_chief: Whether this worker is the chief, which writes the files.
    """

    def __init__(self, model: keras.Model) -> None:
        strategy = model.distribute_strategy
        self._strategy = strategy
        self._hooks = hooks_of(model)
        self.count = 1 if self._hooks is None else self._hooks.workers
        self._worker = 0 if self._hooks is None else self._hooks.worker
        self.is_chief = self._worker == 0

    def slow(self, what: str) -> AbstractContextManager[None]:
        """Tell the hang detection that no step ends soon inside the `with` block.

        Args:
            what: Description of the slow operation.
        """
        progress = None if self._hooks is None else self._hooks.progress
        return contextlib.nullcontext() if progress is None else progress.slow(what)

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return the values that all workers have passed, the chief first.

        Args:
            event: Description of this worker's action.
            value: Anything that JSON can hold.

        Raises:
            UserError: The events of the workers differ.
        """
        return [value] if self._hooks is None else self._hooks.exchange(event, value)

    def compare(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` on all workers if they differ in any value."""
        if self._hooks is not None:
            self._hooks.compare_workers(event, values)

    def of_chief(self, event: str, action: Callable[[], _Value]) -> _Value:
        """Call `action` on the chief alone, and return its result on all workers.

        Args:
            event: Description of the action.
            action: Returns a value that JSON can hold.

        Raises:
            UserError: On all workers, if `action` raises it.
        """
        if self.count == 1:
            return action()
        value, error = None, None
        if self.is_chief:
            try:
                value = action()
            except UserError as mistake:
                error = mistake
        found, message = self.exchange(event, [value, None if error is None else str(error)])[0]
        if message is not None:
            raise error or UserError(message)
        return found  # type: ignore[no-any-return]

    def send_file(self, path: Path, size: int) -> None:
        """Copy a file of the chief to all workers.

        Args:
            path: Path of the chief's file; on the remaining workers, the path to write.
            size: Size of the file in bytes.
        """
        if self.count == 1:
            return
        with open(path, "rb" if self.is_chief else "wb") as file:
            for start in range(0, size, _CHUNK):
                length = min(_CHUNK, size - start)
                # A sum over workers is the broadcast: only the chief's words are not zero. A
                # collective sums numbers of four bytes.
                words = np.zeros(-(-length // 4), np.int32)
                if self.is_chief:
                    words = np.frombuffer(file.read(length).ljust(4 * words.size, b"\0"), np.int32)
                found = sum_over_workers(self._strategy, words)
                if not self.is_chief:
                    file.write(found.tobytes()[:length])


class SharedStore:
    """The checkpoints of a training, in a folder that the chief alone uses.

    All workers must create the store together.

    Args:
        folder: The folder; created if missing.
        workers: Workers of the training.
        keep: Number of checkpoints to keep.
        announce: Called on the chief with a line for each event that the user should know.

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
        """Return the checkpoint to resume on all workers: the chief's newest whole checkpoint.

        Args:
            resume: `"must"` requires a checkpoint, `"never"` requires a folder without checkpoints.
                The chief's value counts.

        Raises:
            UserError: On all workers: a required checkpoint is missing, the folder has forbidden
                checkpoints, all checkpoints are damaged, or the newest whole checkpoint has the
                format of a newer kdist.
        """
        resume = self._workers.of_chief("whether to resume", lambda: resume)
        if resume == "never":
            self._workers.of_chief("the check for checkpoints", self._check_none)
            return None
        found = None

        def find() -> dict[str, Any] | None:
            nonlocal found
            found = self._store.newest() if self._store is not None else None
            return None if found is None else _described(found[0])

        about = self._workers.of_chief("the newest checkpoint", find)
        if about is None and resume == "must":
            raise UserError(
                f'resume is "must", but {self._folder} has no checkpoint: pass the folder of the'
                ' training to resume, or resume="auto"'
            )
        if about is None or self._workers.count == 1:
            return found
        of_chief = CheckpointFile(**{**about["is"], "path": Path(about["path"])})
        if found is not None:
            self._workers.send_file(of_chief.path, about["size"])
            return found
        with tempfile.TemporaryDirectory() as own:
            copy = CheckpointFile(**about["is"], path=Path(own) / of_chief.path.name)
            self._workers.send_file(copy.path, about["size"])
            return of_chief, *copy.read()

    def commit(
        self, *, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint on the chief, as `CheckpointStore.commit` does."""
        if self._store is not None:
            self._store.commit(epoch=epoch, batch=batch, arrays=arrays, state=state)

    def check_room(self, size: int) -> None:
        """Check that the chief's disk has room for a checkpoint.

        Args:
            size: Size of the checkpoint in bytes.

        Raises:
            UserError: On all workers, if the disk lacks the room.
        """

        def check() -> None:
            if self._store is not None:
                self._store.check_room(size)

        self._workers.of_chief("the check of the disk", check)

    def _check_none(self) -> None:
        there = checkpoint_files(self._folder)
        if there:
            raise UserError(
                f'resume is "never", but {self._folder} has checkpoints, the newest'
                f' {there[0].path.name}: pass another folder, or resume="auto"'
            )


def _described(checkpoint: CheckpointFile) -> dict[str, Any]:
    about = {"epoch": checkpoint.epoch, "batch": checkpoint.batch, "digest": checkpoint.digest}
    return {"is": about, "path": str(checkpoint.path), "size": checkpoint.size}


class SharedWriter:
    """Writes checkpoints in sequence, in a thread of the chief.

    Args:
        workers: Workers of the training.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether this worker is the chief and is writing."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None]) -> None:
        """Run a job in a thread on the chief, after the previous job has ended."""
        self.wait()

        def run() -> None:
            try:
                job()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="kdist-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the job is done, and raise its error on this worker alone."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._check()

    def found_nonfinite(self, *, waits: bool = False) -> list[Any] | None:
        """Return the non-finite weights that the job has found.

        Args:
            waits: Whether to wait for a running job.

        Returns:
            A value for `raise_found` that JSON can hold; `None` without a finding, and always
            `None` on workers other than the chief.
        """
        try:
            self.wait() if waits else self._check()
        except NonFiniteWeightsError as error:
            return [error.variable, error.epoch, error.step]
        return None

    def finish(self) -> None:
        """Wait on all workers until the chief's job is done.

        Raises:
            NonFiniteWeightsError: On all workers, if the job has found non-finite weights.
        """
        bad = self._workers.of_chief(
            "the end of a checkpoint", lambda: self.found_nonfinite(waits=True)
        )
        raise_found(bad)

    def _check(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def raise_found(found: list[Any] | None) -> None:
    """Raise `NonFiniteWeightsError` for a finding of `SharedWriter.found_nonfinite`, if any."""
    if found is not None:
        variable, epoch, step = found
        raise NonFiniteWeightsError(variable, epoch=epoch, step=step)


# Seconds between two exchanges. An exchange stops the training for a few milliseconds.
_SECONDS = 1.0


class PeriodicExchange:
    """Exchanges values between the workers about once a second, after the same steps.

    The chief chooses the step of the next exchange from the duration of the last steps. A single
    worker exchanges after every step. All workers must create the object together.

    Args:
        workers: Workers of the training.
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(self, workers: Workers, clock: Callable[[], float]) -> None:
        self._workers, self._clock = workers, clock
        self._steps = self._left = 1
        self._since = clock()

    def is_due(self) -> bool:
        """Count a step; returns whether the workers exchange values after the step."""
        self._left -= 1
        return self._left <= 0 or self._workers.count == 1

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return the values that all workers have passed, the chief first.

        Args:
            event: Description of this worker's action.
            value: Anything that JSON can hold.
        """
        everyone = self._workers.exchange(event, [value, self._until_next()])
        self._steps = self._left = everyone[0][1]
        self._since = self._clock()
        return [own for own, _ in everyone]

    def _until_next(self) -> int:
        """Return the steps until the next exchange.

        The number at most doubles, as the next steps may take longer. A single worker exchanges
        after every step, so that its number would double until no float holds it.
        """
        if self._workers.count == 1:
            return 1
        took = self._clock() - self._since
        in_time = int(_SECONDS * self._steps / took) if took > 0 else 2 * self._steps
        return max(1, min(2 * self._steps, in_time))


class StepExchange:
    """Exchanges signals, due saves and findings of non-finite weights between the workers.

    Signals come from any worker. Due saves by time and the writer's findings come from the chief.
    The methods raise `NonFiniteWeightsError` on all workers for a finding of the chief's writer.
    All workers must create the object together.

    Args:
        workers: Workers of the training.
        signals: Signals to this worker.
        writer: Writer of the chief.
        times: Due times of the chief's saves.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        ends_by: The signal that ends the training; `None` if no worker has received a signal.
        is_due: Whether a save is due.
    """

    def __init__(
        self,
        workers: Workers,
        signals: PreemptionSignals | Received,
        writer: SharedWriter,
        times: SaveTimes,
        clock: Callable[[], float],
    ) -> None:
        self._workers, self._signals = workers, signals
        self._writer, self._times = writer, times
        self._steps = PeriodicExchange(workers, clock)
        self._validation_steps = PeriodicExchange(workers, clock)
        self.ends_by: int | None = None
        self.is_due = False

    def step_ends(self) -> None:
        """Exchange values if an exchange is due."""
        if self._steps.is_due():
            self._exchange(self._steps, by_time=True)

    def validation_step_ends(self) -> None:
        """Exchange signals if an exchange is due; no save is due during validation."""
        if self._validation_steps.is_due():
            self._exchange(self._validation_steps)

    def epoch_ends(self) -> None:
        """Exchange values, and decide about a save at the end of the epoch."""
        self._exchange(self._steps, by_time=True, ends_epoch=True)

    def _exchange(
        self, exchange: PeriodicExchange, *, by_time: bool = False, ends_epoch: bool = False
    ) -> None:
        signal, times = self._signals.first, self._times
        own = [None if signal is None else int(signal), self._writer.found_nonfinite(), False]
        if by_time and self._workers.is_chief and not self._writer.is_busy:
            own[2] = times.at_epoch_end() if ends_epoch else times.by_seconds()
        everyone = exchange.exchange("a step", own)
        self.ends_by = next((one for one, _, _ in everyone if one is not None), None)
        _, bad, self.is_due = everyone[0]
        raise_found(bad)
