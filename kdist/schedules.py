"""Learning rate schedules, which are in `optimizers/`, where users import them from."""

from .optimizers.warm_up import WarmUp, lab_schedule

__all__ = ["WarmUp", "lab_schedule"]
