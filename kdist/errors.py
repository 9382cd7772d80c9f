"""`UserError`: raised for invalid arguments and settings; `TrainingError`: for failed training."""

from collections.abc import Callable


class UserError(ValueError):
    """A mistake in what the caller passed; the command line prints it in one line and exits with 2.

    The message says what was received, what was expected and how to fix it.

    Attributes:
        is_on_all_workers: Whether all workers of a training raise it, with the same message.
    """

    is_on_all_workers = False


class ReportedError(UserError):
    """A mistake that a process of its own has printed: the command line only exits with 2."""


class RefusedCheckpointsError(UserError):
    """All checkpoints are damaged, or of another training: there is nothing to continue."""


class TrainingError(RuntimeError):
    """Training failed; the command line prints the message in one line and exits with 1.

    The message says why and what to change.
    """


class NonFiniteWeightsError(FloatingPointError):
    """The training has diverged.

    Attributes:
        variable: The first variable that has a NaN or an infinity.
        epoch: The epoch, counted from 1, in which it was found.
        step: The step of the epoch, counted from 1, after which it was found.
    """

    def __init__(self, variable: str, *, epoch: int, step: int) -> None:
        super().__init__(
            f"{variable} is not finite after step {step} of epoch {epoch}, so training stopped;"
            " the newest checkpoint is from before: lower the learning rate or clip the gradients"
            " (clipnorm=1.0)"
        )
        self.variable = variable
        self.epoch = epoch
        self.step = step


class LostWorkerError(TrainingError):
    """Another worker has ended, or cannot be reached: it is worth another try."""


FAILURE_HANDLERS: list[Callable[[BaseException, int], object]] = []
"""What `handle_failure` calls, such as to end one of several workers."""


def handle_failure(error: BaseException, code: int) -> None:
    """Call the handlers with the error that ends this process, once that is printed.

    Args:
        error: It.
        code: The exit code.
    """
    for handle in FAILURE_HANDLERS:
        handle(error, code)


def error_text(error: Exception) -> str:
    """Return what an error says, without the path that an `OSError` names."""
    return str((isinstance(error, OSError) and error.strerror) or error or type(error).__name__)
