"""What a study prints: its tables, how far it and what it runs now are, and the time left."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table

from ..charts.tables import ResultsTable
from ..runs.text import count, time_left


def print_line(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def rich_table(table: ResultsTable, *, wraps: bool = True) -> Table:
    """Make a table for a terminal, whose cells may take several lines if it `wraps`."""
    shown = Table(title=table.title)
    for column in table.columns:
        shown.add_column(column, no_wrap=not wraps)
    for row in table.rows:
        shown.add_row(*row)
    return shown


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
        """Describe how long the rest of `total` takes; empty if that is unknown or nothing."""
        if total is None or not self._before < done < total:
            return ""
        seconds = (total - done) * (self._clock() - self._began) / (done - self._before)
        return time_left(seconds)


class Progress:
    """Shows bars for the study and for what it runs now on a terminal, else lines.

    Args:
        announce: Called with a line when a point or trial starts and ends.
        noun: What the study has, such as `trial`.
        total: How many; `None` if unknown.
        ended: How many ended before.
        console: The terminal; `None` if there is none.
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(
        self,
        announce: Callable[[str], None],
        *,
        noun: str = "trial",
        total: int | None = None,
        ended: int = 0,
        console: Console | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.current = ""
        self._announce, self._noun = announce, noun
        self._total, self._ended = total, ended
        self._clock, self._began = clock, clock()
        self._pace, self._current_pace = Pace(done=ended, clock=clock), Pace(clock=clock)
        self._live: Live | None = None
        if console is not None:
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[left]}"),
                console=console,
            )
            self._bars.add_task(f"{noun}s", total=total, completed=ended, left="")
            self._bars.add_task("", total=1.0, left="")
            self._live = Live(self._bars, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, name: str, what: str = "") -> None:
        """Show the name of what runs now; announce what it is, if that is given."""
        self.current, self._began = name, self._clock()
        self._current_pace = Pace(clock=self._clock)
        if what:
            self._announce(f"{name}: {what}")
        self.update(0.0)

    def update(self, done: float, what: str = "") -> None:
        """Move the bars.

        Args:
            done: Fraction that is done of what runs now.
            what: What is being trained, such as `epoch 2/4`.
        """
        if self._live is None:
            return
        study, current = self._bars.tasks
        ended = self._ended + done
        left = self._pace.time_left(ended, total=self._total)
        self._bars.update(study.id, completed=ended, left=left)
        self._bars.update(
            current.id,
            description=f"{self.current}, {what}" if what else self.current,
            completed=done,
            left=self._current_pace.time_left(done, total=1.0),
        )

    def end_epoch(self, done: float, what: str) -> None:
        """Move the bars; without them, announce the epoch and its values; as `update`."""
        self.update(done, what)
        if self._live is None:
            left = self._current_pace.time_left(done, total=1.0)
            self._announce(f"{self.current}: {what}" + (f", {left}" if left else ""))

    def end(self, outcome: str) -> None:
        """Announce the outcome of what ran, in a few words, and how long the rest takes."""
        self._ended += 1
        line = f"{self.current}: {outcome} ({self._clock() - self._began:.1f} seconds)"
        if self._total is not None:
            left = self._pace.time_left(self._ended, total=self._total)
            line += f"; {self._ended} of {count(self._total, self._noun)}"
            line += f", {left}" if left else ""
        self._announce(line)
        if self._live is not None:
            self._bars.update(self._bars.tasks[0].id, completed=self._ended)
