"""What the current thread is doing with a model, for messages to the user."""

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()


@contextlib.contextmanager
def doing(name: str) -> Iterator[None]:
    """Inside the `with` block, the thread is in `fit`, `evaluate` or `predict`."""
    names: list[str] = vars(_thread).setdefault("names", [])
    names.append(name)
    try:
        yield
    finally:
        names.pop()


def activity() -> str:
    """Return what the thread is doing, such as `evaluate in fit`."""
    names = vars(_thread).get("names") or ["a step"]
    return " in ".join(reversed(names))
