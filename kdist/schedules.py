"""Learning rate schedules, for users to import; the code is in `optimizers/`."""

from .optimizers.warm_up import WarmUp, lab_schedule

__all__ = ["WarmUp", "lab_schedule"]
