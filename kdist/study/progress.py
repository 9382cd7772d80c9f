"""Lines of a study on the terminal, with the time left."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from ..training.console import count, time_left


def print_line(console: Console, line: str) -> None:
    """Print a line without markup; on a terminal it wraps between words."""
    console.print(Text(line), soft_wrap=not console.is_terminal)


class Progress:
    """Prints a line when a trial begins and when it ends.

    Args:
        console: The console of the lines.
        noun: `"point"` or `"trial"`.
        total: Number of trials; `None` if unknown.
        ended: Number of trials that ended before.
        clock: Returns the time in seconds, from any origin.

    Example:
        >>> seconds = iter([0.0, 0.0, 60.0])
        >>> progress = Progress(Console(), noun="trial", total=3, clock=lambda: next(seconds))
        >>> progress.begin("trial 0", "batch_size 8")
        trial 0: batch_size 8
        >>> progress.end("trial 0", "val_accuracy 0.9")
        trial 0: val_accuracy 0.9 (60.0 seconds); 1 of 3 trials, about 2.0 minutes left
    """

    def __init__(
        self,
        console: Console,
        *,
        noun: str,
        total: int | None = None,
        ended: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._console, self._noun, self._total = console, noun, total
        self._before = self._ended = ended
        self._clock, self._began = clock, clock()
        self._began_trials: dict[str, float] = {}

    def begin(self, name: str, settings: str = "") -> None:
        """Note the begin of a trial, and print its settings if there are any."""
        self._began_trials[name] = self._clock()
        if settings:
            print_line(self._console, f"{name}: {settings}")

    def end(self, name: str, outcome: str) -> None:
        """Print the outcome of a trial, and the time that the rest takes."""
        now = self._clock()
        self._ended += 1
        line = f"{name}: {outcome} ({now - self._began_trials.pop(name):.1f} seconds)"
        if self._total is not None:
            line += f"; {self._ended} of {count(self._total, self._noun)}"
            left, each = self._total - self._ended, self._ended - self._before
            line += f", {time_left(left * (now - self._began) / each)}" if left > 0 else ""
        print_line(self._console, line)
