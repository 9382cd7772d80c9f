"""Scale learning rate, weight decay and EMA momentum with the global batch: pure arithmetic."""

import math
import typing
from typing import Literal

from ..arguments import positive_integer, positive_number
from ..errors import UserError
from .table import OPTIMIZERS, RULES_OF_OTHERS

Rule = Literal["linear", "sqrt", "none", "auto"]
RULES: tuple[str, ...] = typing.get_args(Rule)

_RULE_OF: dict[str, str] = {
    **RULES_OF_OTHERS,
    **{name: one.rule for name, one in OPTIMIZERS.items()},
}


def scale_learning_rate(
    base: float,
    *,
    replicas: int | None = None,
    global_batch: int | None = None,
    reference_batch: int | None = None,
    rule: str = "linear",
    optimizer: object = None,
) -> float:
    """Scale a learning rate to a global batch that is k times as large.

    k is the number of replicas, if each replica gets the batch size that `base` was chosen for. Or
    it is the ratio of `global_batch` to `reference_batch`. The rules:

    - `"linear"`: `base * k`, so that one step moves the weights as far as k steps with the small
      batch. For SGD, with or without momentum. Goyal et al. 2017, "Accurate, Large Minibatch SGD",
      section 2.1. It fails early in training unless there is a warm-up (section 2.2), and beyond a
      global batch that depends on the task (about 8,192 images in their ImageNet runs).
    - `"sqrt"`: `base * sqrt(k)`, so that the variance of an update stays the same. Krizhevsky 2014,
      "One weird trick for parallelizing convolutional neural networks", section 5, who then found
      linear scaling to work better for SGD. For RMSprop and Adam it is the rule derived by Malladi
      et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms"; theirs also
      scales the betas (`1 - beta` by k) and epsilon (by `1 / sqrt(k)`), which this function leaves
      to the caller. It is valid while gradient noise outweighs the gradient.
    - `"none"`: `base`. For a global batch that stays the same for any number of replicas.
    - `"auto"`: the rule of the optimizer, see `rule_for`.

    Args:
        base: The learning rate for one replica or for the reference batch, above 0.
        replicas: Number of replicas that train together, at least 1. Pass either this or both of
            the following.
        global_batch: Samples per step, over all replicas.
        reference_batch: Samples per step that `base` was chosen for.
        rule: `"linear"`, `"sqrt"`, `"none"` or `"auto"`.
        optimizer: For `"auto"`: an optimizer or its name, such as `"sgd"`.

    Returns:
        The learning rate for the global batch of all replicas.

    Raises:
        UserError: If `base` is not a finite number above 0, a count is not an integer of at least
            1, the counts are missing or given twice, or `rule` is unknown.

    Example:
        >>> scale_learning_rate(0.01, replicas=4)
        0.04
        >>> scale_learning_rate(0.001, replicas=4, rule="sqrt")
        0.002
        >>> scale_learning_rate(0.1, global_batch=1024, reference_batch=256)
        0.4
        >>> scale_learning_rate(0.001, replicas=4, rule="auto", optimizer="adam")
        0.002
    """
    rate = positive_number("base", base, hint="pass the learning rate that suits one replica")
    factor = _batch_ratio(replicas, global_batch, reference_batch)
    return rate * _growth(factor, rule, optimizer)


def rule_for(optimizer: object) -> str:
    """Return the rule by which an optimizer's learning rate scales with the global batch.

    `"linear"` for SGD, also called `"momentum"` (Goyal et al. 2017), and LARS (You et al. 2017);
    `"sqrt"` for Adam, AdamW, Nadam and RMSprop (Malladi et al. 2022), for LAMB (You et al. 2020,
    "Large Batch Optimization for Deep Learning", section 4), and, by analogy as it normalizes
    gradients too, for NovoGrad.

    Args:
        optimizer: An optimizer or its name, in any case.

    Raises:
        UserError: If no rule is known for the optimizer.

    Example:
        >>> rule_for("AdamW")
        'sqrt'
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    name = (inner if isinstance(inner, str) else type(inner).__name__).lower()
    if name not in _RULE_OF:
        raise UserError(
            f'rule="auto" has no rule for optimizer={inner if inner is None else name!r}, only'
            f' for {", ".join(_RULE_OF)}: pass rule="linear", "sqrt" or "none"'
        )
    return _RULE_OF[name]


def scale_ema_momentum(
    momentum: float,
    *,
    replicas: int | None = None,
    global_batch: int | None = None,
    reference_batch: int | None = None,
) -> float:
    """Scale the momentum of a moving average of weights: `momentum ** k`.

    One step with a batch k times as large replaces k steps, each of which would have kept
    `momentum` of the average. Use it for Keras's `ema_momentum`, or for the teacher in
    self-supervised learning. It assumes that the learning rate is scaled by its optimizer's rule.
    Do not use it for batch norm's momentum, whose statistics come from a larger batch, too.

    Args:
        momentum: Above 0 and below 1.
        replicas: As in `scale_learning_rate`. Pass either this or both of the following.
        global_batch: Samples per step, over all replicas.
        reference_batch: Samples per step that `momentum` was chosen for.

    Raises:
        UserError: If a number is out of range.

    Source: Busbridge et al. 2023, "How to Scale Your EMA", definition 1.2.

    Example:
        >>> scale_ema_momentum(0.5, replicas=2)
        0.25
    """
    kept = positive_number("momentum", momentum, hint="pass ema_momentum")
    if kept >= 1:
        raise UserError(f"momentum is {momentum!r}, but has to be below 1: pass ema_momentum.")
    return float(kept ** _batch_ratio(replicas, global_batch, reference_batch))


def scale_weight_decay(
    decay: float,
    *,
    replicas: int | None = None,
    global_batch: int | None = None,
    reference_batch: int | None = None,
    rule: str = "linear",
    optimizer: object = None,
) -> float:
    """Scale a decoupled weight decay so that weights shrink as much per epoch as before.

    A step of AdamW shrinks weights by `learning_rate * decay`, and an epoch has 1/k as many steps.
    If the learning rate is k times as large (`"linear"`), that makes up for it, and the decay stays
    the same. If it is √k times as large, so is the decay. If it stays the same, the decay is k
    times as large.

    Use it for Keras's `weight_decay` of any optimizer. An L2 penalty, such as
    `kernel_regularizer`, is part of the loss and needs no scaling.

    Args:
        decay: Keras's `weight_decay`, above 0.
        replicas: As in `scale_learning_rate`. Pass either this or both of the following.
        global_batch: Samples per step, over all replicas.
        reference_batch: Samples per step that `decay` was chosen for.
        rule: The rule that scales the learning rate.
        optimizer: For `"auto"`, as in `scale_learning_rate`.

    Raises:
        UserError: As `scale_learning_rate` does.

    Source: Wang & Aitchison 2024, "How to set AdamW's weight decay as you scale model and dataset
    size": AdamW's weights are an average over past updates; what should stay the same is its time
    scale, `1 / (learning_rate * decay)` steps, counted in epochs.

    Example:
        >>> scale_weight_decay(0.01, replicas=4, rule="auto", optimizer="adamw")
        0.02
    """
    value = positive_number("decay", decay, hint="pass the weight decay that suits one replica")
    factor = _batch_ratio(replicas, global_batch, reference_batch)
    return value * factor / _growth(factor, rule, optimizer)


def effective_batch(batch_size: int, *, replicas: int = 1, accumulation_steps: int = 1) -> int:
    """Return the number of samples in one update of the weights.

    Args:
        batch_size: Samples per batch and replica.
        replicas: Number of replicas.
        accumulation_steps: Keras's `gradient_accumulation_steps`.

    Raises:
        UserError: If an argument is not an integer of at least 1.

    Example:
        >>> effective_batch(32, replicas=4, accumulation_steps=2)
        256
    """
    return math.prod(
        positive_integer(name, value, hint="pass how many there are")
        for name, value in (
            ("batch_size", batch_size),
            ("replicas", replicas),
            ("accumulation_steps", accumulation_steps),
        )
    )


def _batch_ratio(
    replicas: int | None, global_batch: int | None, reference_batch: int | None
) -> float:
    batches = (global_batch, reference_batch)
    if batches == (None, None):
        return positive_integer("replicas", replicas, hint="pass strategy.num_replicas_in_sync")
    if replicas is not None or None in batches:
        raise UserError(
            f"received replicas={replicas}, global_batch={global_batch} and"
            f" reference_batch={reference_batch}: pass replicas, or both of the batches"
        )
    sizes = [positive_integer("a batch", batch, hint="pass samples per step") for batch in batches]
    return sizes[0] / sizes[1]


def _growth(factor: float, rule: str, optimizer: object) -> float:
    match rule_for(optimizer) if rule == "auto" else rule:
        case "linear":
            return factor
        case "sqrt":
            return math.sqrt(factor)
        case "none":
            return 1
    raise UserError(f"rule is {rule!r}, but has to be one of {', '.join(RULES)}.")
