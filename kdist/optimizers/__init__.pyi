from .large_batch import LARS as LARS
from .large_batch import NovoGrad as NovoGrad
from .warm_up import WarmUp as WarmUp
from .warm_up import warm_up_ema as warm_up_ema
