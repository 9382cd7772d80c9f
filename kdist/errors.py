"""`UserError`: raised for invalid arguments and settings; `TrainingError`: for failed training."""


class UserError(ValueError):
    """A mistake in what the caller passed; the command line prints it in one line and exits with 2.

    The message says what was received, what was expected and how to fix it.
    """


class TrainingError(RuntimeError):
    """Training failed; the command line prints the message in one line and exits with 1.

    The message says why and what to change.
    """


def error_text(error: Exception) -> str:
    """Return what an error says, without the path that an `OSError` names."""
    return str((isinstance(error, OSError) and error.strerror) or error or type(error).__name__)
