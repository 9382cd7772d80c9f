"""`Agreement`: compare what workers are about to do, and do what the chief says.

Workers that hang, and which of them is behind: `worker_watch.py`.
"""

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from .._upstream.worker_failures import is_lost
from ..errors import LostWorkerError, TrainingError, UserError

MISSING = "missing"
ANY = "any"  # the same as every other value
_TOLERANCE = 1e-6  # machines round a computed number differently


def first_difference(path: str, each: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Return the path of the first value that is not the same in all, and what each has there.

    Args:
        path: The name of the whole, or nothing.
        each: Dictionaries, lists and plain values, nested in any way. Numbers that are equal to
            rounding are the same, and `ANY` is the same as every value.

    Example:
        >>> first_difference("layers[3]", [{"units": 2}, {"units": 4}])
        ('layers[3].units', [2, 4])
    """
    if all(isinstance(one, Mapping) for one in each):
        dot = "." if path else ""
        names = dict.fromkeys(name for one in each for name in one)
        parts = [(f"{dot}{name}", [one.get(name, MISSING) for one in each]) for name in names]
        return _first(path, parts)
    if all(isinstance(one, list | tuple) for one in each):
        lengths = [len(one) for one in each]
        if len({*lengths}) > 1:
            return f"the length of {path}", lengths
        places = enumerate(zip(*each, strict=True))
        return _first(path, [(f"[{at}]", list(ones)) for at, ones in places])
    return None if all(_is_same(each[0], one) for one in each[1:]) else (path, list(each))


def _first(path: str, parts: Sequence[tuple[str, list[Any]]]) -> tuple[str, list[Any]] | None:
    for end, each in parts:
        found = first_difference(f"{path}{end}", each)
        if found is not None:
            return found
    return None


def _is_same(one: Any, other: Any) -> bool:
    kinds = {type(one), type(other)}
    if kinds <= {int, float} and float in kinds:
        are_nan = math.isnan(one) and math.isnan(other)
        return are_nan or math.isclose(one, other, rel_tol=_TOLERANCE)
    return bool(one == other) or ANY in (one, other)


def digest(value: Any) -> str:
    """Return a short text that differs where two values do that JSON can hold."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


DEFAULT_SECONDS = 600.0
"""How long a worker waits for the others, unless collectives have a timeout."""

_FIRST_REPORT_SECONDS = 30.0
_SLICE_MS = 250  # in between Python handles signals, and learns of failures


class Agreement:
    """Exchanges values between the workers, all of which have to call it in the same order.

    Args:
        worker: The number of this worker.
        workers: How many there are.
        keys: The store that they share: the module `worker_store`.
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
        keys: Any,
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

    def compare(self, event: str, values: Mapping[str, Any]) -> None:
        """Compare values that have to be the same on all workers.

        Args:
            event: What this worker is doing, such as `fit`.
            values: By name, anything that JSON can hold.

        Raises:
            UserError: They differ, or the workers are doing different things.
        """
        _check_same(event, self.exchange(event, dict(values)))

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
                kind = LostWorkerError if is_lost(reason) else TrainingError
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
