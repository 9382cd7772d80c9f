"""What has to follow the global batch when replicas are added: pure arithmetic."""

import math

from .arguments import positive_integer, real_number
from .errors import UserError

RULES = ("linear", "sqrt", "none")


def scale_learning_rate(base: float, *, replicas: int, rule: str = "linear") -> float:
    """Scale a learning rate that suits one replica to several replicas.

    With the same batch on every replica, k replicas make the global batch k times as large. The
    rules say how the learning rate follows:

    - `"linear"`: `base * k`, so that one step goes as far as k steps of one replica did. For SGD,
      with or without momentum. Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1.
      It fails early in training, which wants a warm-up (section 2.2), and beyond a global batch
      that depends on the task (about 8,192 images in their ImageNet runs).
    - `"sqrt"`: `base * sqrt(k)`, so that the variance of an update stays what it was. Krizhevsky
      2014, "One weird trick for parallelizing convolutional neural networks", section 5, who then
      found linear scaling to work better for SGD. For RMSprop and Adam it is the rule derived by
      Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms"; theirs
      also scales the betas (`1 - beta` by k) and epsilon (by `1 / sqrt(k)`), which this leaves
      to the caller.
    - `"none"`: `base`. For a global batch that stays the same however many replicas share it.

    Args:
        base: The learning rate that suits one replica, above 0.
        replicas: How many replicas train together, at least 1.
        rule: `"linear"`, `"sqrt"` or `"none"`.

    Returns:
        The learning rate for all replicas together.

    Raises:
        UserError: If `base` is no positive finite number, `replicas` no integer of at least 1, or
            `rule` none of the three.

    Example:
        >>> scale_learning_rate(0.01, replicas=4)
        0.04
        >>> scale_learning_rate(0.001, replicas=4, rule="sqrt")
        0.002
    """
    rate = real_number("base", base, mend="pass the learning rate that suits one replica")
    if not (rate > 0 and math.isfinite(rate)):
        raise UserError(
            f"base is {base!r}, but a learning rate has to be above 0 and finite: pass the rate "
            "that suits one replica, for example 0.01."
        )
    factor = positive_integer("replicas", replicas, mend="pass strategy.num_replicas_in_sync")
    match rule:
        case "linear":
            return rate * factor
        case "sqrt":
            return rate * math.sqrt(factor)
        case "none":
            return rate
    raise UserError(f"rule is {rule!r}, but has to be one of {', '.join(RULES)}.")
