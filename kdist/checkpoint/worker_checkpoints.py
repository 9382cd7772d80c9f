"""Checkpoints of several workers: the chief's store and writer, and the times of saves.

With a single worker, this worker is the chief.
"""

import contextlib
import dataclasses
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import is_remote
from ..errors import NonFiniteWeightsError, UserError
from ..remote import RemoteFolder
from ..signals import PreemptionSignals, ReceivedSignals
from ..workers.worker_exchange import PeriodicExchange, Workers
from .checkpoint_file import FILE_NAME, checkpoint_files
from .checkpoint_folder import CheckpointStore, LoadedCheckpoint
from .checkpoint_options import CheckpointOptions, Resume
from .save_times import SaveTimes


class SharedStore:
    """The checkpoints of a training, in a folder that the chief alone uses.

    All workers must create the store together; all workers raise `UserError` if the chief cannot
    use the folder.
    """

    def __init__(
        self, options: CheckpointOptions, workers: Workers, *, announce: Callable[[str], None]
    ) -> None:
        self._name, self._workers = os.fspath(options.folder), workers
        self._folder = Path(self._name)
        self._store: CheckpointStore  # exists only on the chief
        self._remote = options.remote_run

        def open_folder() -> None:
            if is_remote(self._name):
                self._remote = RemoteFolder(self._name, FILE_NAME)
                self._remote.download()
                self._remote.check_writable()
                self._folder = self._remote.local
            self._store = CheckpointStore(self._folder, keep=options.keep, announce=announce)

        with workers.slow("downloading checkpoints"):
            workers.run_on_chief("the folder of the checkpoints", open_folder)

    def close(self) -> None:
        """Let other processes use the folder."""
        if self._workers.is_chief:
            self._store.close()

    def show(self, path: object) -> str:
        """Return the path of a checkpoint or its folder; in a remote folder, the address."""
        return str(path) if self._remote is None else self._remote.insert_address(path)

    def find(self, resume: Resume) -> LoadedCheckpoint | None:
        """Return to all workers the newest whole checkpoint in the chief's folder, to be resumed.

        `"must"` requires a checkpoint, `"never"` requires a folder without checkpoints; the chief's
        value of `resume` counts.

        Raises:
            UserError: On all workers: a required checkpoint is missing, the folder has forbidden
                checkpoints, all checkpoints are damaged, or the newest whole checkpoint has the
                format of a newer kdist.
        """
        resume = self._workers.run_on_chief("whether to resume", lambda: resume)
        if resume == "never":
            self._workers.run_on_chief("the check for checkpoints", self._refuse_checkpoints)
            return None
        found = None

        def find() -> tuple[str, int] | None:
            nonlocal found
            remote = self._remote
            with remote.insert_address_in_errors() if remote else contextlib.nullcontext():
                found = self._store.read_newest()
            return None if found is None else (str(found[0].path), found[0].size)

        newest = self._workers.run_on_chief("the newest checkpoint", find)
        if newest is None and resume == "must":
            raise UserError(
                f'resume is "must", but {self.show(self._name)} has no checkpoint: pass the folder'
                ' of the training to resume, or resume="auto"'
            )
        if newest is None or self._workers.count == 1:
            return found
        path, size = Path(newest[0]), newest[1]
        if found is not None:
            self._workers.send_file(path, size)
            return found
        with tempfile.TemporaryDirectory() as folder:
            self._workers.send_file(Path(folder) / path.name, size)
            [copy] = checkpoint_files(folder)
            return dataclasses.replace(copy, path=path), *copy.read()

    def commit(
        self, *, epoch: int, batch: int, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint on the chief, and upload a remote folder."""
        self._store.commit(epoch=epoch, batch=batch, arrays=arrays, state=state)
        if self._remote is not None:
            self._remote.upload()

    def _refuse_checkpoints(self) -> None:
        if checkpoints := checkpoint_files(self._folder):
            raise UserError(
                f'resume is "never", but {self.show(self._name)} has checkpoints,'
                f' the newest {checkpoints[0].path.name}: pass another folder, or resume="auto"'
            )


class SharedWriter:
    """Writes checkpoints in sequence, in a thread of the chief."""

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

    def pop_nonfinite_finding(self, *, wait: bool = False) -> list[Any] | None:
        """Remove and return the chief's finding of non-finite weights; `None` without a finding.

        With `wait`, a running job ends first. `raise_nonfinite` turns the finding into an error.
        """
        try:
            self.wait() if wait else self._check()
        except NonFiniteWeightsError as error:
            return [error.variable, error.epoch, error.step]
        return None

    def finish(self) -> None:
        """Wait on all workers until the chief's job is done.

        All workers raise `NonFiniteWeightsError` if the job has found non-finite weights.
        """
        finding = self._workers.run_on_chief(
            "the end of a checkpoint", lambda: self.pop_nonfinite_finding(wait=True)
        )
        raise_nonfinite(finding)

    def _check(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def raise_nonfinite(found: list[Any] | None) -> None:
    """Raise `NonFiniteWeightsError` if `SharedWriter.pop_nonfinite_finding` returned a finding."""
    if found is not None:
        variable, epoch, step = found
        raise NonFiniteWeightsError(variable, epoch=epoch, step=step)


class StepExchange:
    """Exchanges signals, due saves and findings of non-finite weights between the workers.

    Any worker may receive a signal. Only the chief decides whether a save is due by time, and only
    its writer finds non-finite weights; then the methods raise `NonFiniteWeightsError` on all
    workers. All workers must create the object together.

    Attributes:
        ending_signal: The signal that ends the training; `None` if no worker has received a signal.
        is_due: Whether a save is due.
    """

    def __init__(
        self,
        workers: Workers,
        signals: PreemptionSignals | ReceivedSignals,
        writer: SharedWriter,
        times: SaveTimes,
        clock: Callable[[], float],
    ) -> None:
        self._workers, self._signals = workers, signals
        self._writer, self._times = writer, times
        self._steps = PeriodicExchange(workers, clock)
        self._validation_steps = PeriodicExchange(workers, clock)
        self.ending_signal: int | None = None
        self.is_due = False

    def step_ends(self) -> None:
        """Exchange signals, due saves and findings if an exchange is due."""
        if self._steps.is_due():
            self._exchange(self._steps, by_time=True)

    def validation_step_ends(self) -> None:
        """Exchange signals if an exchange is due; no save is due during validation."""
        if self._validation_steps.is_due():
            self._exchange(self._validation_steps)

    def epoch_ends(self) -> None:
        """Exchange signals and findings, and decide about a save at the end of the epoch."""
        self._exchange(self._steps, by_time=True, ends_epoch=True)

    def _exchange(
        self, exchange: PeriodicExchange, *, by_time: bool = False, ends_epoch: bool = False
    ) -> None:
        signal, times = self._signals.first, self._times
        finding, is_due = self._writer.pop_nonfinite_finding(), False
        if by_time and self._workers.is_chief and not self._writer.is_busy:
            is_due = times.is_due_at_epoch_end() if ends_epoch else times.is_due_by_seconds()
        number = None if signal is None else int(signal)
        by_worker = exchange.exchange("a step", [number, finding, is_due])
        self.ending_signal = next(
            (number for number, _, _ in by_worker if number is not None), None
        )
        _, finding, self.is_due = by_worker[0]
        raise_nonfinite(finding)
