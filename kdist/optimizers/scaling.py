"""Scale the learning rate with the global batch: pure arithmetic."""

import math
import typing
from typing import Literal

from ..arguments import number_within, positive_integer
from ..errors import UserError
from .optimizer_choices import OPTIMIZERS, RULES_OF_KERAS_OPTIMIZERS

Rule = Literal["linear", "sqrt", "none", "auto"]
RULES: tuple[str, ...] = typing.get_args(Rule)

_RULE_OF: dict[str, str] = {
    **RULES_OF_KERAS_OPTIMIZERS,
    **{name: optimizer.rule for name, optimizer in OPTIMIZERS.items()},
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

    If each replica gets the batch size that `base` was chosen for, k is the number of replicas.
    Otherwise k is the ratio of `global_batch` to `reference_batch`. The rules:

    - `"linear"`: `base * k`, so that a step moves the weights as far as k steps with the small
      batch. For SGD, with or without momentum. Goyal et al. 2017, "Accurate, Large Minibatch SGD",
      section 2.1. The rule fails early in training unless there is a warm-up (section 2.2), and
      beyond a global batch that depends on the task (about 8,192 images in their ImageNet runs).
    - `"sqrt"`: `base * sqrt(k)`, so that the variance of an update stays the same. Krizhevsky 2014,
      "One weird trick for parallelizing convolutional neural networks", section 5; Krizhevsky then
      found linear scaling to work better for SGD. For RMSprop and Adam, Malladi et al. 2022, "On
      the SDEs and Scaling Rules for Adaptive Gradient Algorithms", derive this rule. Their rule
      also scales the betas (`1 - beta` by k) and epsilon (by `1 / sqrt(k)`); this function leaves
      both to the caller. The rule is valid while gradient noise outweighs the gradient.
    - `"none"`: `base`. For a global batch that does not grow with the number of replicas.
    - `"auto"`: the rule of the optimizer. `"linear"` for SGD (also under the name `"momentum"`) and
      LARS (You et al. 2017); `"sqrt"` for Adam, AdamW, Nadam and RMSprop, for LAMB (You et al.
      2020, "Large Batch Optimization for Deep Learning", section 4), and for NovoGrad, by analogy:
      NovoGrad normalizes gradients, too.

    Args:
        base: The learning rate for one replica or for the reference batch, above 0.
        replicas: Number of replicas that train together, at least 1. Pass either `replicas`, or
            both `global_batch` and `reference_batch`.
        global_batch: Samples per step, over all replicas.
        reference_batch: Samples per step that `base` was chosen for.
        rule: `"linear"`, `"sqrt"`, `"none"` or `"auto"`.
        optimizer: For `"auto"`: an optimizer or its name, such as `"sgd"`, in any case.

    Returns:
        The learning rate for the global batch of all replicas.

    Raises:
        UserError: If `base` is not a finite number above 0, a count is not an integer of at least
            1, the counts are missing or given twice, or `rule`, or the rule of the optimizer, is
            unknown.

    Examples:
        >>> scale_learning_rate(0.01, replicas=4)
        0.04
        >>> scale_learning_rate(0.001, replicas=4, rule="sqrt")
        0.002
        >>> scale_learning_rate(0.1, global_batch=1024, reference_batch=256)
        0.4
        >>> scale_learning_rate(0.001, replicas=4, rule="auto", optimizer="adam")
        0.002
    """
    rate = number_within(
        "base", base, above=0, hint="pass the learning rate that suits one replica"
    )
    batch_ratio = _batch_ratio(replicas, global_batch, reference_batch)
    return rate * _rate_factor(batch_ratio, rule, optimizer)


def learning_rate_rule_of(optimizer: object) -> str:
    """Return the rule that scales an optimizer's learning rate with the global batch.

    Args:
        optimizer: An optimizer or its name, in any case.

    Raises:
        UserError: If no rule is known for the optimizer.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # a LossScaleOptimizer wraps it
    name = (inner if isinstance(inner, str) else type(inner).__name__).lower()
    if name not in _RULE_OF:
        raise UserError(
            f'rule="auto" has no rule for optimizer={inner if inner is None else name!r}, only'
            f' for {", ".join(_RULE_OF)}: pass rule="linear", "sqrt" or "none"'
        )
    return _RULE_OF[name]


def _batch_ratio(
    replicas: int | None, global_batch: int | None, reference_batch: int | None
) -> float:
    batches = (global_batch, reference_batch)
    if batches == (None, None):
        return positive_integer("replicas", replicas, hint="pass strategy.num_replicas_in_sync")
    if replicas is not None or None in batches:
        raise UserError(
            f"received replicas={replicas}, global_batch={global_batch} and"
            f" reference_batch={reference_batch}: pass either replicas, or both global_batch and"
            " reference_batch"
        )
    hint = "pass the number of samples in a step"
    global_size = positive_integer("global_batch", global_batch, hint=hint)
    return global_size / positive_integer("reference_batch", reference_batch, hint=hint)


def _rate_factor(batch_ratio: float, rule: str, optimizer: object) -> float:
    match learning_rate_rule_of(optimizer) if rule == "auto" else rule:
        case "linear":
            return batch_ratio
        case "sqrt":
            return math.sqrt(batch_ratio)
        case "none":
            return 1
    raise UserError(f"rule is {rule!r}, but has to be one of {', '.join(RULES)}")
