"""`SharedWriter`: writes on the chief, and has all workers know what it has found."""

from collections.abc import Callable
from typing import Any

from .background_writer import BackgroundWriter
from .nonfinite import NonFiniteWeightsError
from .workers import Workers


class SharedWriter:
    """Commits generations in a thread of the chief's.

    Args:
        workers: Of the training.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._writer = BackgroundWriter()

    @property
    def is_busy(self) -> bool:
        """Whether this is the chief, and is writing."""
        return self._writer.is_busy

    def start(self, job: Callable[[], None]) -> None:
        """Run a job on the chief, after the one before."""
        self._writer.start(job)

    def wait(self) -> None:
        """Wait until the job is done, and raise what it has raised, on this worker alone."""
        self._writer.wait()

    def found_nonfinite(self, *, waits: bool = False) -> list[Any] | None:
        """Return what the job has found in the weights that it was to write.

        Args:
            waits: For a job that is not done.

        Returns:
            The arguments of `nonfinite_error`, which JSON can hold; `None` on other workers.
        """
        try:
            self._writer.wait() if waits else self._writer.check()
        except NonFiniteWeightsError as error:
            return [error.variable, error.epoch, error.step]
        return None

    def finish(self) -> None:
        """Wait on all workers until the chief has written.

        Raises:
            NonFiniteWeightsError: On all workers, for what it was to write.
        """
        bad = self._workers.of_chief(
            "the end of a checkpoint", lambda: self.found_nonfinite(waits=True)
        )
        if bad is not None:
            raise nonfinite_error(bad)


def nonfinite_error(found: list[Any]) -> NonFiniteWeightsError:
    """Return the error that says what `SharedWriter.found_nonfinite` has found."""
    variable, epoch, step = found
    return NonFiniteWeightsError(variable, epoch=epoch, step=step)
