"""Learning rate schedules, for users to import; the code is in `optimizers/`."""

from .optimizers.schedules import lab_schedule
from .optimizers.warm_up import WarmUp

__all__ = ["WarmUp", "lab_schedule"]
