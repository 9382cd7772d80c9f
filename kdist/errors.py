"""`UserError`: raised for invalid arguments and settings."""


class UserError(ValueError):
    """A mistake in what the caller passed; the command line prints it in one line and exits with 2.

    The message says what was received, what was expected and how to fix it.
    """
