"""Scale learning rate, weight decay and EMA momentum with the global batch: `optimizers/`."""

from .optimizers.scaling import (
    effective_batch,
    rule_for,
    scale_ema_momentum,
    scale_learning_rate,
    scale_weight_decay,
)

__all__ = [
    "effective_batch",
    "rule_for",
    "scale_ema_momentum",
    "scale_learning_rate",
    "scale_weight_decay",
]
