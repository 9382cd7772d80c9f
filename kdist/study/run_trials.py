"""`TrialRunner`: runs the trials of a study in child processes, and records a row for each.

A `Study`, which is a sweep or a search, returns trials until no trial is left, and is told the
result of each trial. Rows are written before the next trial begins, so that the same command
continues after a kill.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals
from typing import Protocol

from rich.console import Console

from ..errors import UserError, message_without_path
from ..processes.child import Resources
from ..signals import signal_of
from ..training.printed_lines import format_count
from ..training.run_record import RunRecord, read_run
from .study_folder import Row, StudyFolder
from .tables import print_line
from .trial import Trial
from .trial_process import TrialProcess

_POLL_SECONDS = 0.1
# Time for a process to end its step and to save a checkpoint.
_GRACE_SECONDS = 30.0

StartTrial = Callable[[Trial, Path, Resources], TrialProcess]


class Study(Protocol):
    """A source of trials.

    Attributes:
        total: Number of trials; `None` if unknown.
    """

    total: int | None

    def next_trial(self) -> Trial | None:
        """Return the next trial; `None` if none is left, or none can begin before a trial ends."""

    def read_result(self, trial: Trial, run: RunRecord) -> Row:
        """Return the columns that are read from the run of a trial.

        Raises:
            UserError: The run has no usable result: the trial has failed.
        """

    def describe_row(self, row: Row) -> str:
        """Return the result of a trial in a few words."""

    def end_trial(self, trial: Trial, row: Row) -> None:
        """Record the row of a trial, and remove checkpoints that no later trial continues."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a sweep or search.

    Attributes:
        rows: A row for each trial that ended, in the order of their ends.
        folder: The folder of the sweep or search.
        signal: The signal that ended the study; `None` without a signal.
        stop_reason: The reason of an early stop; empty if the study did not stop early.
    """

    rows: Sequence[Row]
    folder: Path
    signal: Signals | None = None
    stop_reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all trials have ended."""
        return self.signal is None and not self.stop_reason

    @property
    def exit_code(self) -> int:
        """0; 1 if the study stopped early or all trials failed; 128 + the signal's number."""
        if self.signal is not None:
            return 128 + self.signal
        failed = all(row["status"] == "failed" for row in self.rows)
        return 1 if self.stop_reason or failed else 0


class TrialRunner:
    """Runs the remaining trials of a study.

    Args:
        study: The source of the trials.
        folder: The folder of the study, inside `StudyFolder.open`.
        rows: The rows of the trials that ended before.
        console: Prints the progress.
        shares: GPUs and cores of each trial that runs at the same time; a single trial by default.
        start: Starts the process of a trial.
    """

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        rows: Sequence[Row],
        console: Console,
        *,
        shares: Sequence[Resources] = (Resources(),),
        start: StartTrial = TrialProcess,
    ) -> None:
        self._study, self._folder, self._console = study, folder, console
        self._rows = list(rows)
        self._start_times: dict[str, float] = {}
        self._free_shares, self._start_process = list(shares), start
        self._running: list[tuple[TrialProcess, Resources]] = []

    def run(self) -> Outcome:
        """Run trials until no trial is left.

        A failed trial gets a row with its error. A file of the study that cannot be written,
        Ctrl-C, SIGTERM and SIGHUP stop the study. An interrupted trial gets no row: the same
        command runs the trial again, or continues from the trial's checkpoint.
        """
        outcome = Outcome(rows=self._rows, folder=self._folder.path)
        try:
            self._begin_trials()
            while self._running:
                self._end_trial(*self._wait_for_end())
                self._begin_trials()
        except KeyboardInterrupt as error:
            return dataclasses.replace(outcome, signal=signal_of(error))
        except OSError as error:
            return dataclasses.replace(outcome, stop_reason=message_without_path(error))
        finally:
            self._save_and_end_all()
        return outcome

    def _begin_trials(self) -> None:
        """Begin trials while a GPU or a share of the CPU is free; record invalid trials."""
        while self._free_shares and (trial := self._study.next_trial()) is not None:
            self._start_times[trial.name] = time.perf_counter()
            if trial.description:
                print_line(self._console, f"{trial.name}: {trial.description}")
            if trial.error:
                self._record_row(trial, {"status": "failed", "error": trial.error})
                continue
            folder, share = self._folder.trial_folder(trial.name), self._free_shares[0]
            process = self._start_process(trial, folder, share)
            self._running.append((process, self._free_shares.pop(0)))

    def _wait_for_end(self) -> tuple[TrialProcess, Resources]:
        """Wait for a process to end, and return it with its share."""
        while True:
            for index, (process, _) in enumerate(self._running):
                if process.has_ended:
                    return self._running.pop(index)
            time.sleep(_POLL_SECONDS)

    def _end_trial(self, process: TrialProcess, share: Resources) -> None:
        try:
            error = process.find_error()
        finally:
            process.kill()
        self._free_shares.append(share)
        trial = process.trial
        result = {"status": "failed", "error": error} if error else self._read_run(trial)
        self._record_row(trial, result)

    def _read_run(self, trial: Trial) -> Row:
        path = self._folder.trial_folder(trial.name) / "run"
        try:
            result = self._study.read_result(trial, read_run(path))
        except (UserError, OSError) as error:
            return {"status": "failed", "error": f"the run cannot be used: {error}"}
        return {"status": "done", "run_dir": str(path.relative_to(self._folder.path)), **result}

    def _record_row(self, trial: Trial, result: Row) -> None:
        row = {"name": trial.name, **trial.columns, **result}
        self._folder.write_rows([*self._rows, row])
        self._rows.append(row)
        self._study.end_trial(trial, row)
        seconds = time.perf_counter() - self._start_times.pop(trial.name)
        ended, total = len(self._rows), self._study.total
        progress = "" if total is None else f"; {ended} of {format_count(total, self._folder.noun)}"
        result_text = self._study.describe_row(row)
        print_line(self._console, f"{trial.name}: {result_text} ({seconds:.1f} seconds){progress}")

    def _save_and_end_all(self) -> None:
        """Let each trial save a checkpoint, then end all; a second signal kills them at once."""
        try:
            saving = [process for process, _ in self._running if process.ask_to_end()]
            if saving:
                number = format_count(len(saving), self._folder.noun)
                print_line(
                    self._console,
                    f"Waiting for {number} to save; press Ctrl-C again to end without saving",
                )
            deadline = time.monotonic() + _GRACE_SECONDS
            for process in saving:
                process.wait(max(0.0, deadline - time.monotonic()))
        except (KeyboardInterrupt, TimeoutError):
            pass
        finally:
            for process, _ in self._running:
                process.kill()


def print_end(
    outcome: Outcome, noun: str, console: Console, *, remedy: str = "run the same command again"
) -> None:
    """Print why a study ended early, and how to resume it."""
    if not outcome.is_whole:
        reason = f"Stopped: {outcome.stop_reason}" if outcome.stop_reason else "Interrupted"
        count = format_count(len(outcome.rows), noun)
        results = f"The results of {count} are in {outcome.folder}"
        print_line(console, f"{reason}. {results}: {remedy} to resume.")
