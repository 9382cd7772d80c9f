"""Optimizers for large batches, which Keras does not ship."""

from .lars import LARS
from .novograd import NovoGrad

__all__ = ["LARS", "NovoGrad"]
