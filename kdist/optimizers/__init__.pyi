from .lars import LARS as LARS
from .novograd import NovoGrad as NovoGrad
