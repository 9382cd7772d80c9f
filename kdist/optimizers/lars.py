"""`LARS`: momentum SGD with steps proportional to the norm of each layer's weights."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from .arguments import checked_number
from .layerwise import LayerwiseOptimizer, dense_gradient


@keras.saving.register_keras_serializable(package="kdist")
class LARS(LayerwiseOptimizer):
    """Layer-wise adaptive rate scaling: momentum SGD for global batches of thousands.

    With w the weights of a layer, g their gradient, η `trust_coefficient` and β
    `weight_decay_rate`, a step is

        λ = η ‖w‖ / (‖g‖ + β ‖w‖)
        v ← momentum · v + learning_rate · λ · (g + β w)
        w ← w - v

    so the size of a layer's step is proportional to its weights, not to its gradient. If ‖w‖ or
    ‖g‖ is 0, λ is 1. Excluded variables get neither λ nor decay: plain momentum.

    Args:
        learning_rate: A rate, a Keras schedule or a callable. As λ is small, rates are larger than
            for SGD: 1 to 30.
        momentum: At least 0 and below 1.
        trust_coefficient: η, above 0.
        weight_decay_rate: β, the factor of an L2 penalty's gradient, as in the paper. Keras's
            decoupled `weight_decay` is not accepted.
        nesterov: Whether to use Nesterov momentum.
        exclude: Names (`variable.name`) of variables that get plain momentum.
        epsilon: Added to λ's divisor.
        name: The optimizer's name.
        **kwargs: Arguments of any Keras optimizer: `clipnorm`, `use_ema`,
            `gradient_accumulation_steps`, ….

    Raises:
        UserError: An argument is out of range.

    Example:
        ```python
        optimizer = kdist.optimizers.LARS(kdist.schedules.WarmUp(10.0, steps=200))
        ```

    Source: You, Gitman & Ginsburg 2017, "Large Batch Training of Convolutional Networks",
    algorithm 1. Biases and batch norm are excluded since You et al. 2018, "ImageNet Training in
    Minutes".
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        *,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
        weight_decay_rate: float = 0.0,
        nesterov: bool = False,
        exclude: Sequence[str] = ("bias", "beta", "gamma"),
        epsilon: float = 1e-8,
        name: str = "lars",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            weight_decay_rate=weight_decay_rate,
            exclude=exclude,
            name=name,
            options=kwargs,
        )
        self.momentum = checked_number("momentum", momentum, below=1)
        self.trust_coefficient = checked_number("trust_coefficient", trust_coefficient, above=0)
        self.nesterov = nesterov
        self.epsilon = checked_number("epsilon", epsilon)

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = dense_gradient(gradient, variable)
        index = self._get_variable_index(variable)
        velocity = self.momentums[index]
        if not self.excluded[index]:
            weights = ops.convert_to_tensor(variable)
            weight_norm, gradient_norm = (
                ops.sqrt(ops.sum(ops.square(x))) for x in (weights, gradient)
            )
            divisor = gradient_norm + self.weight_decay_rate * weight_norm + self.epsilon
            trust = self.trust_coefficient * weight_norm / divisor
            are_positive = ops.logical_and(weight_norm > 0, gradient_norm > 0)
            rate = rate * ops.where(are_positive, trust, 1.0)
            gradient = gradient + self.weight_decay_rate * weights
        step = rate * gradient
        self.assign(velocity, self.momentum * velocity + step)
        self.assign_sub(variable, self.momentum * velocity + step if self.nesterov else velocity)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return super().get_config() | {
            "momentum": self.momentum,
            "trust_coefficient": self.trust_coefficient,
            "nesterov": self.nesterov,
            "epsilon": self.epsilon,
        }
