"""`Agreement`: compare what the workers are about to do, and do what the chief says."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from .. import _upstream
from ..errors import LostWorkerError, TrainingError, UserError
from .first_difference import first_difference
from .plain_config import digest

DEFAULT_SECONDS = 600.0
"""How long a worker waits for the others, unless collectives have a timeout."""

_FIRST_REPORT_SECONDS = 30.0
_SLICE_MS = 250  # in between Python handles signals, and learns of failures


class Keys(Protocol):
    """A store of values that all workers can read."""

    def set_key(self, key: str, value: str) -> None:
        """Store a value."""

    def get_key(self, key: str, *, timeout_ms: int) -> str | None:
        """Return a value; `None` if there is none within the time."""

    def delete_key(self, key: str) -> None:
        """Delete a value."""


class Agreement:
    """Exchanges values between the workers, all of which have to call it in the same order.

    Args:
        worker: The number of this worker.
        workers: How many there are.
        keys: The store that they share.
        timeout_seconds: How long to wait for a worker.
        failures: Returns for each worker why it has failed, `None` for those that have not.
        may_take_longer: Returns whether another worker does what takes long, such as saving.
        clock: Returns seconds.
        report: Called with a line about a worker that is waited for.
    """

    def __init__(
        self,
        worker: int,
        workers: int,
        keys: Keys,
        *,
        timeout_seconds: float = DEFAULT_SECONDS,
        failures: Callable[[], Sequence[str | None]] = tuple,
        may_take_longer: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> None:
        self._worker, self._workers, self._keys = worker, workers, keys
        self._timeout_seconds, self._clock, self._report = timeout_seconds, clock, report
        self._failures, self._may_take_longer = failures, may_take_longer
        self._count = 0

    def exchange(self, event: str, value: Any) -> list[Any]:
        """Return what every worker has passed, the chief first.

        Args:
            event: What this worker is doing, such as `fit`.
            value: Anything that JSON can hold.

        Raises:
            UserError: The workers are doing different things, or one has not come in time.
            TrainingError: A worker has failed; `LostWorkerError` if nobody knows why.
        """
        if self._workers == 1:
            return [value]
        number, self._count = self._count, self._count + 1
        self._keys.set_key(self._key(number, self._worker), json.dumps([event, value]))
        everyone = [
            [event, value] if worker == self._worker else self._wait(number, worker, event)
            for worker in range(self._workers)
        ]
        # Whoever has come here has read all that was exchanged before.
        if number:
            self._keys.delete_key(self._key(number - 1, self._worker))
        events = [event for event, _ in everyone]
        if len(set(events)) > 1:
            raise _on_all_workers(
                f"the workers do different things: {_by_worker(events)}; all have to make the same"
                " models, and to call fit, evaluate and predict in the same order: do not call them"
                " on the chief alone"
            )
        return [value for _, value in everyone]

    def compare(
        self, event: str, values: Mapping[str, Any], details: Mapping[str, Any] | None = None
    ) -> None:
        """Compare values that have to be the same on all workers.

        Args:
            event: What this worker is doing, such as `fit`.
            values: By name, anything that JSON can hold.
            details: The same for values that may be long: only where their digests differ do the
                workers send them. Names that one of the workers lacks are not compared.

        Raises:
            UserError: They differ, or the workers are doing different things.
        """
        own = digest(details)
        everyone = self.exchange(event, [dict(values), own])
        _check_same(event, [one for one, _ in everyone])
        if any(other != own for _, other in everyone):
            each = self.exchange(event, details)
            names = set(each[0]).intersection(*each[1:])
            _check_same(event, [{n: v for n, v in one.items() if n in names} for one in each])

    def compare_lists(
        self, event: str, values: Sequence[str], describe: Callable[[int], str]
    ) -> None:
        """Compare two long lists of texts, such as the operations of a step.

        Args:
            event: What this worker is doing.
            values: The texts; only where their digests differ do the workers send them.
            describe: Called with the place of the first difference, at most the list's length;
                returns what to say of this worker's.

        Raises:
            UserError: They differ.
        """
        if len(set(self.exchange(event, digest(list(values))))) == 1:
            return
        each = self.exchange(event, list(values))
        at = next(i for i, texts in enumerate(zip_longest(*each)) if len(set(texts)) > 1)
        found = self.exchange(event, describe(at))
        raise _on_all_workers(
            f"the workers differ at {event}: {_by_worker(found)}; it has to be the same on all"
        )

    def of_chief(self, event: str, value: Any) -> Any:
        """Return what the chief has passed."""
        return self.exchange(event, value)[0]

    def _wait(self, number: int, worker: int, event: str) -> Any:
        start = self._clock()
        next_report = _FIRST_REPORT_SECONDS
        while True:
            found = self._keys.get_key(self._key(number, worker), timeout_ms=_SLICE_MS)
            if found is not None:
                return json.loads(found)
            self._check_failures()
            waited = self._clock() - start
            if waited > self._timeout_seconds and not self._may_take_longer():
                raise UserError(
                    f"worker {self._worker} has waited {waited:.0f} seconds for worker {worker} at"
                    f" {event}: look at its output; all workers have to call fit, evaluate and"
                    " predict in the same order. If it takes longer, raise hang_seconds of the"
                    " strategy, or the timeout_seconds of its communication_options"
                )
            if waited > next_report:
                next_report *= 2
                self._report(
                    f"kdist: worker {self._worker} is at {event}, and has waited {waited:.0f}"
                    f" seconds for worker {worker}"
                )

    def _check_failures(self) -> None:
        for worker, reason in enumerate(self._failures()):
            if reason is not None:
                kind = LostWorkerError if _upstream.is_lost(reason) else TrainingError
                raise kind(f"worker {worker} has failed: {reason}; its output says more")

    @staticmethod
    def _key(number: int, worker: int) -> str:
        return f"kdist/{number}/{worker}"


def _check_same(event: str, everyone: Sequence[Mapping[str, Any]]) -> None:
    for name in dict.fromkeys(name for one in everyone for name in one):
        found = first_difference(name, [one.get(name) for one in everyone])
        if found is not None:
            path, each = found
            raise _on_all_workers(
                f"the workers differ at {event}: {path} is {_by_worker(_apart(each))};"
                " it has to be the same on all workers"
            )


def _on_all_workers(message: str) -> UserError:
    error = UserError(message)
    error.is_on_all_workers = True
    return error


def _by_worker(values: Sequence[Any]) -> str:
    """Say which worker has what, those that have the same together."""
    by_value: dict[str, list[str]] = {}
    for worker, value in enumerate(values):
        by_value.setdefault(str(value), []).append(str(worker))
    return ", ".join(
        f"{value} on worker{'s' * (len(names) > 1)} {' and '.join(names)}"
        for value, names in by_value.items()
    )


_LONGEST = 60


def _apart(values: Sequence[Any]) -> list[str]:
    """Shorten long values to the parts around their first difference."""
    texts = [str(value) for value in values]
    if max(map(len, texts)) <= _LONGEST:
        return texts
    same = next(
        (i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1),
        min(map(len, texts)),
    )
    start = max(0, same - _LONGEST // 2)
    return [("…" * bool(start)) + text[start : start + _LONGEST] for text in texts]
