"""`Workload`: work to be timed."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

CLASSES = 10
IMAGE_SHAPE = (28, 28, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """Work to be timed.

    Args:
        work: Does one turn, and returns its seconds.
        facts: `images` or `operations` per turn, and other facts for the table.
    """

    work: Callable[[], float]
    facts: dict[str, Any]


class Unavailable(Exception):  # noqa: N818 - not an error: the candidate is skipped
    """The candidate cannot run on this machine; the message says why."""


@contextlib.contextmanager
def optional_library(name: str) -> Iterator[None]:
    """Turn an `ImportError` of the `with` block into `Unavailable`."""
    try:
        yield
    except ImportError as error:
        raise Unavailable(
            f"{name} is not installed: pip install '.[peers]' in a checkout of kdist"
        ) from error


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a function that calls `work` and returns the seconds that it took."""

    def turn() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return turn


def random_images(count: int) -> tuple[Any, Any]:
    """Make random float32 images of Fashion-MNIST's shape with labels, always the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.normal(size=(count, *IMAGE_SHAPE)).astype("float32")
    return images, rng.integers(0, CLASSES, count)
