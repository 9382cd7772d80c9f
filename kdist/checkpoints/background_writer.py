"""`BackgroundWriter`: commits generations in a thread, one after the other."""

import threading
from collections.abc import Callable


class BackgroundWriter:
    """Runs one job at a time beside the training.

    What a job raises is raised again by the next `wait`.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a job is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None]) -> None:
        """Run a job, after the one before."""
        self.wait()

        def run() -> None:
            try:
                job()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="kdist-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the job is done, and raise what it has raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise what a job that is done has raised, without waiting for one that is not."""
        error, self._error = self._error, None
        if error is not None:
            raise error
