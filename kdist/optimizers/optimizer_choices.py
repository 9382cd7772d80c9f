"""Optimizers of `kdist train --optimizer`; a new optimizer needs an entry here.

The setting and its checks follow from the entry, and so does the optimizer's rule in
`scale_learning_rate`. The help texts of `optimizer`, `momentum` and `wd` are in
`kdist/training/settings.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError

# Keras is imported inside the functions, as the command line needs only the names.


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerEntry:
    """An optimizer that can be chosen by its name.

    Attributes:
        rule: The rule that scales the learning rate with the global batch, see
            `scale_learning_rate`.
        class_name: The class in `kdist.optimizers` or `keras.optimizers`.
        momentum: Default of the setting `momentum`; `None` if the optimizer lacks this setting.
        weight_decay: Name of the optimizer's argument for weight decay, the setting `wd`; `None` if
            `wd` is an L2 penalty in the loss.
    """

    rule: Literal["linear", "sqrt"]
    class_name: str
    momentum: float | None = None
    weight_decay: str | None = None


OPTIMIZERS: Mapping[str, OptimizerEntry] = {
    "sgd": OptimizerEntry(rule="linear", class_name="SGD", momentum=0.0),
    "momentum": OptimizerEntry(rule="linear", class_name="SGD", momentum=0.9),
    "adam": OptimizerEntry(rule="sqrt", class_name="Adam"),
    "adamw": OptimizerEntry(rule="sqrt", class_name="AdamW", weight_decay="weight_decay"),
    "novograd": OptimizerEntry(
        rule="sqrt", class_name="NovoGrad", weight_decay="weight_decay_rate"
    ),
    "lars": OptimizerEntry(
        rule="linear", class_name="LARS", momentum=0.9, weight_decay="weight_decay_rate"
    ),
}
RULES_OF_KERAS_OPTIMIZERS: Mapping[str, str] = {"nadam": "sqrt", "rmsprop": "sqrt", "lamb": "sqrt"}
"""Rules of `scale_learning_rate` for optimizers of Keras that are not in `OPTIMIZERS`."""

WITH_MOMENTUM = [name for name, optimizer in OPTIMIZERS.items() if optimizer.momentum is not None]
"""Names of the optimizers that take the setting `momentum`."""
WITH_WEIGHT_DECAY = [name for name, optimizer in OPTIMIZERS.items() if optimizer.weight_decay]
"""Names of the optimizers that apply weight decay (the setting `wd`) themselves."""

if TYPE_CHECKING:
    OptimizerName = str
else:
    OptimizerName = Literal[tuple(OPTIMIZERS)]


def check_momentum(name: str, momentum: float | None) -> None:
    """Reject a `momentum` for optimizers without this argument, such as Adam."""
    if momentum is not None and name not in WITH_MOMENTUM:
        raise UserError(
            f"received momentum={momentum:g} with optimizer={name}, which has its own"
            f" momentum (beta_1): remove momentum, or choose {', '.join(WITH_MOMENTUM)}"
        )


def l2_factor(name: str, weight_decay: float) -> float:
    """Return the factor of the L2 penalty in the loss: 0 if the optimizer applies weight decay."""
    return 0.0 if name in WITH_WEIGHT_DECAY else weight_decay


def make_optimizer(
    name: str,
    rate: Any,
    *,
    momentum: float | None,
    weight_decay: float,
    ema_momentum: float | None = None,
    ema_warmup: bool = False,
) -> Any:
    """Create the optimizer called `name`, with a learning rate or Keras schedule.

    `"sgd"` and `"momentum"` are SGD with Nesterov momentum, by default 0 and 0.9. `momentum` is for
    the optimizers in `WITH_MOMENTUM`, `weight_decay` for the optimizers in `WITH_WEIGHT_DECAY`.
    Without `ema_momentum`, no moving average of weights is kept; with `ema_warmup`, the average
    begins with a small momentum, see `warm_up_ema`.
    """
    if name not in OPTIMIZERS:
        raise UserError(f"optimizer is {name!r}, but has to be one of {', '.join(OPTIMIZERS)}")
    import keras

    from .. import optimizers

    chosen = OPTIMIZERS[name]
    options: dict[str, Any] = {}
    if chosen.momentum is not None:
        options["momentum"] = chosen.momentum if momentum is None else momentum
    if chosen.class_name == "SGD":
        options["nesterov"] = options["momentum"] > 0
    if chosen.weight_decay is not None:
        options[chosen.weight_decay] = weight_decay
    if ema_momentum is not None:
        options |= {"use_ema": True, "ema_momentum": ema_momentum}
    is_ours = hasattr(optimizers, chosen.class_name)
    optimizer_class = getattr(optimizers if is_ours else keras.optimizers, chosen.class_name)
    optimizer = optimizer_class(rate, **options)
    return optimizers.warm_up_ema(optimizer) if ema_warmup else optimizer
