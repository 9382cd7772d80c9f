"""What the current thread is doing with a model, for messages to the user."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

_thread = threading.local()


@contextlib.contextmanager
def doing(name: str, arguments: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Inside the `with` block, the thread is in `fit`, `evaluate` or `predict`.

    Args:
        name: Of these.
        arguments: That it was called with, to be compared between workers.
    """
    calls: list[_Call] = vars(_thread).setdefault("calls", [])
    calls.append(_Call(name, arguments or {}))
    try:
        yield
    finally:
        calls.pop()


def activity() -> str:
    """Return what the thread is doing, such as `evaluate in fit`."""
    names = [call.name for call in _calls()] or ["a step"]
    return " in ".join(reversed(names))


def arguments() -> Mapping[str, Any]:
    """Return the arguments of the innermost call that the thread is in."""
    return _calls()[-1].arguments if _calls() else {}


def reads_other_data() -> None:
    """Each worker reads data of its own, in all calls that the thread is in."""
    for call in _calls():
        call.has_other_data = True


def reads_same_data() -> bool:
    """Whether all workers read the same data in the call that the thread is in."""
    return bool(_calls()) and not _calls()[-1].has_other_data


class _Call:
    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name, self.arguments, self.has_other_data = name, arguments, False


def _calls() -> list[_Call]:
    return vars(_thread).get("calls") or []
