"""`Workload`: work that is timed, and what the candidates share."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

CLASSES = 10
IMAGE_SHAPE = (28, 28, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """Work that is timed.

    Args:
        work: Does one turn and returns the seconds that count.
        facts: `images` or `operations` of a turn, and other facts for the table.
    """

    work: Callable[[], float]
    facts: dict[str, Any]


class Unavailable(Exception):  # noqa: N818 - no error: the candidate is skipped
    """This candidate cannot take part on this machine, and why."""


@contextlib.contextmanager
def peer(name: str) -> Iterator[None]:
    """Import a library inside that need not be there."""
    try:
        yield
    except ImportError as error:
        raise Unavailable(f"{name} is not installed: pip install 'kdist[peers]'") from error


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """The whole of a call counts."""

    def turn() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return turn


def random_images(count: int) -> tuple[Any, Any]:
    """Images of the shape of Fashion-MNIST, float32, and labels: the same for everybody."""
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.normal(size=(count, *IMAGE_SHAPE)).astype("float32")
    return images, rng.integers(0, CLASSES, count)
