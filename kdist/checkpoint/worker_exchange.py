"""What the workers of a training tell each other; the store and the writer of their chief."""

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
"""Bytes that a file is sent by: what a worker needs besides."""


class Workers:
    """What the workers of a model tell each other; for one worker all of it is at hand.

    All have to call the same methods in the same order, but for the properties.

    Args:
        model: The model.

    Attributes:
        count: How many there are.
        is_chief: Whether this is the one that writes.
    """

    def __init__(self, model: keras.Model) -> None:
        strategy = model.distribute_strategy
        self._strategy = strategy
        self._hooks = hooks_of(model)
        self.count = 1 if self._hooks is None else self._hooks.workers
        self._worker = 0 if self._hooks is None else self._hooks.worker
        self.is_chief = self._worker == 0

    def slow(self, what: str) -> AbstractContextManager[None]:
        """Inside the `with` block, no step is expected to end soon.

        Args:
            what: What takes long.
        """
        progress = None if self._hooks is None else self._hooks.progress
        return contextlib.nullcontext() if progress is None else progress.slow(what)

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first.

        Args:
            event: What this worker is doing.
            value: Anything that JSON can hold.

        Raises:
            UserError: The workers are doing different things.
        """
        return [value] if self._hooks is None else self._hooks.exchange(event, value)

    def compare(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` on all workers if they differ in any value."""
        if self._hooks is not None:
            self._hooks.compare_workers(event, values)

    def of_chief(self, event: str, action: Callable[[], _Value]) -> _Value:
        """Do something on the chief alone; returns on all workers what it has returned.

        Args:
            event: What this is.
            action: Returns a value that JSON can hold.

        Raises:
            UserError: On all workers, where `action` has raised it.
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
        """Give all workers a file of the chief's.

        Args:
            path: There on the chief, and written on the others.
            size: Its bytes.
        """
        if self.count == 1:
            return
        with open(path, "rb" if self.is_chief else "wb") as file:
            for start in range(0, size, _CHUNK):
                length = min(_CHUNK, size - start)
                # Collectives sum numbers of four bytes.
                words = np.zeros(-(-length // 4), np.int32)
                if self.is_chief:
                    words = np.frombuffer(file.read(length).ljust(4 * words.size, b"\0"), np.int32)
                found = sum_over_workers(self._strategy, words)
                if not self.is_chief:
                    file.write(found.tobytes()[:length])


class SharedStore:
    """The checkpoints of a training, in a folder that the chief alone uses.

    Args:
        folder: Made where it is missing.
        workers: Of the training, which make this together.
        keep: How many checkpoints are kept.
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
        """Return on all workers the chief's newest whole checkpoint, which is to be resumed.

        Args:
            resume: `"must"` requires a checkpoint, `"never"` requires that there is none. The
                chief's counts.

        Raises:
            UserError: On all workers; there is none, or one, or all of them are damaged.
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
        """Write a checkpoint, as `CheckpointStore.commit` does, if this is the chief."""
        if self._store is not None:
            self._store.commit(epoch=epoch, batch=batch, arrays=arrays, state=state)

    def check_room(self, size: int) -> None:
        """Check on the chief that the disk can take a checkpoint.

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
    """Writes checkpoints in a thread of the chief's, one after the other.

    Args:
        workers: Of the training.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether this is the chief, and is writing."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None]) -> None:
        """Run a job on the chief, after the one before."""
        self.wait()

        def run() -> None:
            try:
                job()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="kdist-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the job is done, and raise what it has raised, on this worker alone."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._check()

    def found_nonfinite(self, *, waits: bool = False) -> list[Any] | None:
        """Return what the job has found in the weights that it was to write.

        Args:
            waits: For a job that is not done.

        Returns:
            What `raise_found` takes, which JSON can hold; `None` on other workers.
        """
        try:
            self.wait() if waits else self._check()
        except NonFiniteWeightsError as error:
            return [error.variable, error.epoch, error.step]
        return None

    def finish(self) -> None:
        """Wait on all workers until the chief has written.

        Raises:
            NonFiniteWeightsError: On all workers, for what it was to write.
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
    """Raise `NonFiniteWeightsError` for what `SharedWriter.found_nonfinite` has found, if any."""
    if found is not None:
        variable, epoch, step = found
        raise NonFiniteWeightsError(variable, epoch=epoch, step=step)


# An exchange takes a few milliseconds, in which nobody trains.
_SECONDS = 1.0


class PeriodicExchange:
    """Has the workers exchange, after the same steps, what each of them alone knows.

    That is about once a second: the chief names the next step, by how long the last ones took. A
    worker that is on its own is asked after every step.

    Args:
        workers: Of the training, which make this together.
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(self, workers: Workers, clock: Callable[[], float]) -> None:
        self._workers, self._clock = workers, clock
        self._steps = self._left = 1
        self._since = clock()

    def is_due(self) -> bool:
        """Count a step; returns whether the workers ask each other after it."""
        self._left -= 1
        return self._left <= 0 or self._workers.count == 1

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first.

        Args:
            event: What this worker is doing.
            value: Anything that JSON can hold.
        """
        everyone = self._workers.exchange(event, [value, self._until_next()])
        self._steps = self._left = everyone[0][1]
        self._since = self._clock()
        return [own for own, _ in everyone]

    def _until_next(self) -> int:
        """Steps, at most twice as many as before, as the next ones may take longer."""
        took = self._clock() - self._since
        in_time = int(_SECONDS * self._steps / took) if took > 0 else 2 * self._steps
        return max(1, min(2 * self._steps, in_time))


class StepExchange:
    """Signals to any worker, and from the chief whether to save, and what its writer has found.

    The methods raise `NonFiniteWeightsError` on all workers for what the writer has found.

    Args:
        workers: Of the training, which make this together.
        signals: To this worker.
        writer: Of the chief.
        times: When the chief saves.
        clock: Returns the time in seconds, from any origin.

    Attributes:
        ends_by: The signal that ends the training; `None` if no worker has received one.
        is_due: Whether it is time to save.
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
        """Ask, if it is time."""
        if self._steps.is_due():
            self._exchange(self._steps, by_time=True)

    def validation_step_ends(self) -> None:
        """Ask for signals, if it is time."""
        if self._validation_steps.is_due():
            self._exchange(self._validation_steps)

    def epoch_ends(self) -> None:
        """Ask."""
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
