"""Optimizers of `kdist train --optimizer`; a new optimizer needs an entry here.

The setting, its help and its checks follow from the entry. So does the rule of
`scale_learning_rate` for the optimizer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError

# Keras is imported inside the functions, as the command line needs the names alone.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer that can be chosen by its name.

    Attributes:
        rule: The rule that scales the learning rate with the global batch, see `rule_for`.
        make: Function that makes the optimizer. Its arguments: the learning rate or schedule, the
            keywords `momentum` and `wd` if the optimizer has these settings, and Keras's keywords
            for a moving average of weights.
        momentum: Default of the setting `momentum`; `None` if the optimizer lacks this setting.
        has_weight_decay: Whether `wd` is the optimizer's own weight decay, instead of an L2 penalty
            in the loss.
        note: Explanation of the name in the help text, if the name does not say enough.
    """

    rule: Literal["linear", "sqrt"]
    make: Callable[..., Any]
    momentum: float | None = None
    has_weight_decay: bool = False
    note: str = ""


def _sgd(rate: Any, *, momentum: float, **options: Any) -> Any:
    import keras

    return keras.optimizers.SGD(rate, momentum=momentum, nesterov=momentum > 0, **options)


def _adam(rate: Any, **options: Any) -> Any:
    import keras

    return keras.optimizers.Adam(rate, **options)


def _adamw(rate: Any, *, wd: float, **options: Any) -> Any:
    import keras

    return keras.optimizers.AdamW(rate, weight_decay=wd, **options)


def _novograd(rate: Any, *, wd: float, **options: Any) -> Any:
    from .large_batch import NovoGrad

    return NovoGrad(rate, weight_decay_rate=wd, **options)


def _lars(rate: Any, *, momentum: float, wd: float, **options: Any) -> Any:
    from .large_batch import LARS

    return LARS(rate, momentum=momentum, weight_decay_rate=wd, **options)


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(rule="linear", make=_sgd, momentum=0.0),
    "momentum": Optimizer(rule="linear", make=_sgd, momentum=0.9, note="is SGD with momentum 0.9"),
    "adam": Optimizer(rule="sqrt", make=_adam),
    "adamw": Optimizer(rule="sqrt", make=_adamw, has_weight_decay=True),
    "novograd": Optimizer(rule="sqrt", make=_novograd, has_weight_decay=True),
    "lars": Optimizer(rule="linear", make=_lars, momentum=0.9, has_weight_decay=True),
}
RULES_OF_OTHERS: Mapping[str, str] = {"nadam": "sqrt", "rmsprop": "sqrt", "lamb": "sqrt"}
"""Rules of `scale_learning_rate` for optimizers of Keras that are not in `OPTIMIZERS`."""

WITH_MOMENTUM = [name for name, optimizer in OPTIMIZERS.items() if optimizer.momentum is not None]
"""Names of the optimizers that take the setting `momentum`."""
WITH_WEIGHT_DECAY = [name for name, optimizer in OPTIMIZERS.items() if optimizer.has_weight_decay]
"""Names of the optimizers with a weight decay of their own, the setting `wd`."""

if TYPE_CHECKING:
    OptimizerName = str
else:
    OptimizerName = Literal[tuple(OPTIMIZERS)]


def check_momentum(name: str, momentum: float | None) -> None:
    """Reject a `momentum` for optimizers without this argument.

    Raises:
        UserError: The optimizer is Adam or similar.
    """
    if momentum is not None and name not in WITH_MOMENTUM:
        raise UserError(
            f"received momentum={momentum:g} with optimizer={name}, which has its own"
            f" momentum (beta_1): remove momentum, or choose {', '.join(WITH_MOMENTUM)}"
        )


def l2_factor(name: str, wd: float) -> float:
    """Return the factor of the L2 penalty in the loss: 0 if the optimizer has its own decay."""
    return 0.0 if name in WITH_WEIGHT_DECAY else wd


def make_optimizer(
    name: str,
    rate: Any,
    *,
    momentum: float | None,
    wd: float,
    ema_momentum: float | None = None,
    ema_warmup: bool = False,
) -> Any:
    """Make the optimizer called `name`.

    Args:
        name: A name in `OPTIMIZERS`: `"sgd"` and `"momentum"` are SGD with Nesterov momentum, by
            default 0 and 0.9.
        rate: A learning rate or Keras schedule.
        momentum: Momentum of optimizers in `WITH_MOMENTUM`; `None` for the default.
        wd: Weight decay of optimizers in `WITH_WEIGHT_DECAY`.
        ema_momentum: Momentum of the moving average of weights; `None` for no average.
        ema_warmup: Whether the average begins with a small momentum.

    Raises:
        UserError: There is no optimizer of this name.
    """
    if name not in OPTIMIZERS:
        raise UserError(f"optimizer has to be one of {', '.join(OPTIMIZERS)}; received {name}")
    chosen = OPTIMIZERS[name]
    options: dict[str, Any] = {}
    if chosen.momentum is not None:
        options["momentum"] = chosen.momentum if momentum is None else momentum
    if chosen.has_weight_decay:
        options["wd"] = wd
    if ema_momentum is not None:
        options |= {"use_ema": True, "ema_momentum": ema_momentum}
    optimizer = chosen.make(rate, **options)
    if not ema_warmup:
        return optimizer
    from . import warm_up_ema

    return warm_up_ema(optimizer)
