"""Learning rate schedules, for users to import; the code is in `optimizers/`."""

from .optimizers.warm_up import WarmUp

__all__ = ["WarmUp"]
