from .ema_warm_up import warm_up_ema as warm_up_ema
from .lars import LARS as LARS
from .novograd import NovoGrad as NovoGrad
