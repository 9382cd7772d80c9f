"""`SearchProgress`: how far a search and its current trial are, and the time left."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ..runs.text import count, time_left


class Pace:
    """Estimates the time that is left from the time that was taken so far.

    Args:
        done: How much was done before.
        clock: Returns the time in seconds, from any origin.

    Example:
        >>> seconds = iter([0.0, 60.0])
        >>> Pace(done=2, clock=lambda: next(seconds)).time_left(4, total=10)
        'about 3.0 minutes left'
    """

    def __init__(self, *, done: float = 0.0, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._began = clock()
        self._before = done

    def time_left(self, done: float, *, total: float | None) -> str:
        """Describe how long the rest takes; empty if that is unknown, or there is none.

        Args:
            done: How much is done.
            total: How much there is in all; `None` if unknown.
        """
        if total is None or not self._before < done < total:
            return ""
        seconds = (total - done) * (self._clock() - self._began) / (done - self._before)
        return time_left(seconds)


class SearchProgress:
    """Shows bars for the search and the current trial on a terminal, else a line per epoch.

    Args:
        announce: Called with a line when a trial starts and ends.
        total: Trials of the search; `None` if unknown.
        ended: Trials that ended before.
        console: The terminal; `None` if there is none.
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(
        self,
        announce: Callable[[str], None],
        *,
        total: int | None = None,
        ended: int = 0,
        console: Console | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._announce = announce
        self._total = total
        self._ended = ended
        self._clock = clock
        self._trial = ""
        self._search_pace = Pace(done=ended, clock=clock)
        self._trial_pace = Pace(clock=clock)
        self._trial_began = clock()
        self._bars = None if console is None else _make_bars(console, total, ended)

    def __enter__(self) -> "SearchProgress":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def begin_trial(self, trial: str, values: str) -> None:
        """Announce a trial.

        Args:
            trial: Its name.
            values: Its hyperparameters.
        """
        self._trial, self._trial_began = f"trial {trial}", self._clock()
        self._trial_pace = Pace(clock=self._clock)
        self._announce(f"{self._trial}: {values}")
        self.update(0.0, "")

    def update(self, done: float, what: str) -> None:
        """Move the bars.

        Args:
            done: Fraction of the trial that is done.
            what: What is being trained, such as `epoch 2/4`.
        """
        if self._bars is None:
            return
        search, trial = self._bars.tasks
        self._bars.update(
            trial.id,
            description=f"{self._trial}, {what}" if what else self._trial,
            completed=done,
            left=self._trial_pace.time_left(done, total=1.0),
        )
        self._bars.update(
            search.id, completed=self._ended + done, left=self._search_left(self._ended + done)
        )

    def end_epoch(self, done: float, what: str) -> None:
        """Announce an epoch, unless there is a bar.

        Args:
            done: Fraction of the trial that is done.
            what: The epoch and its values.
        """
        self.update(done, what)
        if self._bars is None:
            left = self._trial_pace.time_left(done, total=1.0)
            self._announce(f"{self._trial}: {what}" + (f", {left}" if left else ""))

    def end_trial(self, outcome: str) -> None:
        """Announce the outcome of the current trial, and how long the others take."""
        self._ended += 1
        line = f"{self._trial}: {outcome} ({self._clock() - self._trial_began:.1f} seconds)"
        if self._total is not None:
            left = self._search_left(self._ended)
            line += f"; {self._ended} of {count(self._total, 'trial')}" + (
                f", {left}" if left else ""
            )
        self._announce(line)
        if self._bars is not None:
            self._bars.update(self._bars.tasks[0].id, completed=self._ended)

    def _search_left(self, ended: float) -> str:
        return self._search_pace.time_left(ended, total=self._total)


def _make_bars(console: Console, total: int | None, ended: int) -> Progress:
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
        refresh_per_second=2,
        transient=True,
    )
    bars.add_task("trials", total=total, completed=ended, left="")
    bars.add_task("", total=1.0, left="")
    return bars
