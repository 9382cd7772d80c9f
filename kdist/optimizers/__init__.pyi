from .lars_and_novograd import LARS as LARS
from .lars_and_novograd import NovoGrad as NovoGrad
from .warm_up import WarmUp as WarmUp
from .warm_up import warm_up_ema as warm_up_ema
