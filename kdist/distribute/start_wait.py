"""`limit_start`: a worker does not wait forever for others that never start."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..launch import start_watch


@contextlib.contextmanager
def limit_start(addresses: Sequence[str], *, worker: int, seconds: float) -> Iterator[None]:
    """End this process if the block, in which the workers find each other, takes too long.

    Args:
        addresses: Of all workers, by their number.
        worker: The number of this one.
        seconds: The limit.
    """
    if len(addresses) == 1:
        yield
        return
    arguments = [str(seconds), str(worker), *addresses]
    watch = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-I", str(Path(start_watch.__file__)), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the worker
    )
    try:
        yield
    finally:
        watch.communicate()
