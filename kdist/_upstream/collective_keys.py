"""The keys by which the collectives of several workers find each other.

TensorFlow gives every collective a new key each time it runs, an input of the step's function. A
key that is fixed when the step is traced costs less, but has to belong to values of one shape.
"""

import contextlib
import threading
from collections.abc import Iterator

_steps = 0  # for all threads, as replicas are traced in threads of their own
_thread = threading.local()


@contextlib.contextmanager
def static_keys() -> Iterator[None]:
    """Inside the `with` block, keys may be fixed: all workers trace the same step."""
    global _steps
    _steps += 1
    try:
        yield
    finally:
        _steps -= 1


@contextlib.contextmanager
def static_shape(is_static: bool) -> Iterator[None]:
    """Inside the `with` block, a collective is made whose values have a fixed shape, or not."""
    _thread.is_static = is_static
    try:
        yield
    finally:
        _thread.is_static = False


def has_static_keys() -> bool:
    """Whether the key of a collective that is made now is fixed."""
    return is_tracing_step() and getattr(_thread, "is_static", False)


def is_tracing_step() -> bool:
    """Whether a step is traced, the same on all workers."""
    return _steps > 0
