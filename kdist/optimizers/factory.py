"""Make the optimizer of a run from its name."""

import typing
from typing import Any, Literal

from ..errors import UserError

OptimizerName = Literal["sgd", "momentum", "adam", "adamw", "novograd", "lars"]
OPTIMIZERS: tuple[str, ...] = typing.get_args(OptimizerName)

_DEFAULT_MOMENTUM = {"sgd": 0.0, "momentum": 0.9, "lars": 0.9}
_WITH_WEIGHT_DECAY = ("adamw", "novograd", "lars")


def check_momentum(name: str, momentum: float | None) -> None:
    """Reject a `momentum` for optimizers without this argument.

    Raises:
        UserError: The optimizer is Adam or similar.
    """
    if momentum is not None and name not in _DEFAULT_MOMENTUM:
        raise UserError(
            f"received momentum={momentum:g} with optimizer={name}, which has its own"
            f" momentum (beta_1): remove momentum, or choose {', '.join(_DEFAULT_MOMENTUM)}"
        )


def l2_factor(name: str, wd: float) -> float:
    """Return the factor of the L2 penalty in the loss: 0 if the optimizer has its own decay."""
    return 0.0 if name in _WITH_WEIGHT_DECAY else wd


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
        name: One of `OPTIMIZERS`: `"sgd"` and `"momentum"` are SGD with Nesterov momentum, by
            default 0 and 0.9.
        rate: A learning rate or Keras schedule.
        momentum: Momentum of SGD and LARS; `None` for the default.
        wd: Weight decay of AdamW, NovoGrad and LARS.
        ema_momentum: Momentum of the moving average of weights; `None` for no average.
        ema_warmup: Whether the average begins with a small momentum.
    """
    average: dict[str, Any] = {}
    if ema_momentum is not None:
        average = {"use_ema": True, "ema_momentum": ema_momentum}
    optimizer = _make(name, rate, momentum, wd, average)
    if not ema_warmup:
        return optimizer
    from . import warm_up_ema

    return warm_up_ema(optimizer)


def _make(name: str, rate: Any, momentum: float | None, wd: float, average: dict[str, Any]) -> Any:
    import keras

    from . import LARS, NovoGrad

    momentum = _DEFAULT_MOMENTUM.get(name, 0.0) if momentum is None else momentum
    match name:
        case "sgd" | "momentum":
            return keras.optimizers.SGD(rate, momentum=momentum, nesterov=momentum > 0, **average)
        case "adam":
            return keras.optimizers.Adam(rate, **average)
        case "adamw":
            return keras.optimizers.AdamW(rate, weight_decay=wd, **average)
        case "novograd":
            return NovoGrad(rate, weight_decay_rate=wd, **average)
        case "lars":
            return LARS(rate, momentum=momentum, weight_decay_rate=wd, **average)
    raise UserError(f"optimizer has to be one of {', '.join(OPTIMIZERS)}; received {name}")
