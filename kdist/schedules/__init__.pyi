from .warm_up import WarmUp as WarmUp
from .warm_up import lab_schedule as lab_schedule
