"""`Agreement`: exchange and compare values between the workers before they act.

`hang_detection.py` ends workers that hang, and finds the workers that are behind.
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
ANY = "any"  # equal to every value
_TOLERANCE = 1e-6  # machines round a computed number differently


def first_difference(path: str, by_worker: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Return the path of the first difference, with every worker's value there; `None` if equal.

    `by_worker` has the value of each worker. Numbers that are equal up to rounding are the same,
    and `ANY` is the same as every value.

    Examples:
        >>> first_difference("layers[3]", [{"units": 2}, {"units": 4}])
        ('layers[3].units', [2, 4])
    """
    if all(isinstance(value, Mapping) for value in by_worker):
        dot = "." if path else ""
        names = dict.fromkeys(name for values in by_worker for name in values)
        parts = [
            (f"{dot}{name}", [values.get(name, MISSING) for values in by_worker]) for name in names
        ]
        return _first_of_parts(path, parts)
    if all(isinstance(value, list | tuple) for value in by_worker):
        lengths = [len(values) for values in by_worker]
        if len({*lengths}) > 1:
            return f"the length of {path}", lengths
        rows = enumerate(zip(*by_worker, strict=True))
        return _first_of_parts(path, [(f"[{index}]", list(items)) for index, items in rows])
    first, *others = by_worker
    return None if all(_is_same(first, value) for value in others) else (path, list(by_worker))


def _first_of_parts(
    path: str, parts: Sequence[tuple[str, list[Any]]]
) -> tuple[str, list[Any]] | None:
    for end, by_worker in parts:
        found = first_difference(f"{path}{end}", by_worker)
        if found is not None:
            return found
    return None


def _is_same(left: Any, right: Any) -> bool:
    kinds = {type(left), type(right)}
    if kinds <= {int, float} and float in kinds:
        are_nan = math.isnan(left) and math.isnan(right)
        return are_nan or math.isclose(left, right, rel_tol=_TOLERANCE)
    return bool(left == right) or ANY in (left, right)


def hash_json(value: Any) -> str:
    """Return a short hash of a value that JSON can hold."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


DEFAULT_WAIT_SECONDS = 600.0
"""Default limit of a wait for a worker. Long `hang_seconds` of the strategy raise the limit, and
`timeout_seconds` of its `communication_options` replace it."""

_FIRST_REPORT_SECONDS = 30.0
_POLL_MS = 250  # between two polls, Python handles signals, and failures are checked


class Agreement:
    """Exchanges values between the workers; all workers have to call the methods in the same order.

    The workers share the key-value store `keys`, such as the module `worker_store`. A wait is
    limited, unless a worker has reported slow work, such as saving.
    """

    def __init__(
        self,
        worker: int,
        workers: int,
        keys: Any,
        *,
        timeout_seconds: float = DEFAULT_WAIT_SECONDS,
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
        """Return the values of all workers, the chief's first; JSON has to hold them.

        Raises:
            UserError: The workers are doing different things, or a worker does not arrive in time.
            TrainingError: A worker has failed; `LostWorkerError` if the reason is unknown.
        """
        if self._workers == 1:
            return [value]
        number, self._count = self._count, self._count + 1
        self._keys.set_key(self._key(number, self._worker), json.dumps([event, value]))
        everyone = [
            [event, value] if worker == self._worker else self._wait_for(number, worker, event)
            for worker in range(self._workers)
        ]
        # A worker stores a value only after it has read all values of the previous exchange. All
        # workers have stored a value now, so the previous value can be deleted.
        if number:
            self._keys.delete_key(self._key(number - 1, self._worker))
        events = [event for event, _ in everyone]
        if len(set(events)) > 1:
            raise _common_error(
                f"the workers do different things: {_describe_by_worker(events)}; all workers have"
                " to create the same models, and to call fit, evaluate and predict in the same"
                " order: call none of these on the chief alone"
            )
        return [value for _, value in everyone]

    def compare(self, event: str, values: Mapping[str, Any]) -> None:
        """Raise `UserError` on all workers if a value differs; further errors as in `exchange`."""
        _check_same(event, self.exchange(event, dict(values)))

    def compare_lists(
        self, event: str, values: Sequence[str], describe: Callable[[int], str]
    ) -> None:
        """Raise `UserError` if the workers' long lists of texts differ.

        The workers send the texts only if the hashes differ. `describe` describes this worker's
        item at the index of the first difference; for a list that ends there, the index is the
        list's length.
        """
        if len(set(self.exchange(event, hash_json(list(values))))) == 1:
            return
        lists = self.exchange(event, list(values))
        at = next(index for index, texts in enumerate(zip_longest(*lists)) if len(set(texts)) > 1)
        items = _describe_by_worker(self.exchange(event, describe(at)))
        raise _common_error(
            f"the workers differ at {event}: {items}; all workers have to do the same"
        )

    def _wait_for(self, number: int, worker: int, event: str) -> Any:
        start = self._clock()
        next_report = _FIRST_REPORT_SECONDS
        while True:
            found = self._keys.get_key(self._key(number, worker), timeout_ms=_POLL_MS)
            if found is not None:
                return json.loads(found)
            self._check_failures()
            waited = self._clock() - start
            if waited > self._timeout_seconds and not self._may_take_longer():
                raise UserError(
                    f"worker {self._worker} has waited {waited:.0f} seconds for worker {worker} at"
                    f" {event}: look at the output of worker {worker}; all workers have to call"
                    " fit, evaluate and predict in the same order. If the work takes longer, raise"
                    " hang_seconds of the strategy, or timeout_seconds of its communication_options"
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
                raise kind(f"worker {worker} has failed: {reason}; see its output")

    @staticmethod
    def _key(number: int, worker: int) -> str:
        return f"kdist/{number}/{worker}"


def _check_same(event: str, everyone: Sequence[Mapping[str, Any]]) -> None:
    for name in dict.fromkeys(name for values in everyone for name in values):
        found = first_difference(name, [values.get(name) for values in everyone])
        if found is not None:
            path, by_worker = found
            values = _describe_by_worker(_shorten(by_worker))
            raise _common_error(
                f"the workers differ at {event}: {path} is {values}; the value has to be the same"
                " on all workers"
            )


def _common_error(message: str) -> UserError:
    error = UserError(message)
    error.is_raised_on_all_workers = True
    return error


def _describe_by_worker(values: Sequence[Any]) -> str:
    """Describe the value of each worker; workers with the same value are named together."""
    by_value: dict[str, list[str]] = {}
    for worker, value in enumerate(values):
        by_value.setdefault(str(value), []).append(str(worker))
    return ", ".join(
        f"{value} on worker{'s' * (len(names) > 1)} {' and '.join(names)}"
        for value, names in by_value.items()
    )


_LONGEST_TEXT = 60


def _shorten(values: Sequence[Any]) -> list[str]:
    """Shorten long values to the parts around their first difference."""
    texts = [str(value) for value in values]
    if max(map(len, texts)) <= _LONGEST_TEXT:
        return texts
    same = next(
        (index for index, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1),
        min(map(len, texts)),
    )
    start = max(0, same - _LONGEST_TEXT // 2)
    return [("…" * bool(start)) + text[start : start + _LONGEST_TEXT] for text in texts]
