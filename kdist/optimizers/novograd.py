"""`NovoGrad`: gradients normalized per layer, with Adam's momentum."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from .arguments import checked_number
from .layerwise import LayerwiseOptimizer, dense_gradient


@keras.saving.register_keras_serializable(package="kdist")
class NovoGrad(LayerwiseOptimizer):
    """NovoGrad: normalizes gradients by layer, for large batches, with half of Adam's memory.

    With w the weights of a layer, g their gradient and d `weight_decay_rate`, a step is

        v ← beta_2 · v + (1 - beta_2) · ‖g‖²        (one number per layer; first ‖g‖²)
        m ← beta_1 · m + (g / (√v + epsilon) + d w)
        w ← w - learning_rate · m

    Args:
        learning_rate: A rate, a Keras schedule or a callable. The paper uses about 0.01 to 0.05.
        beta_1: Momentum, at least 0 and below 1.
        beta_2: Decay of the norm's moving average, at least 0 and below 1.
        epsilon: Added to √v, above 0.
        weight_decay_rate: d, decoupled from the norm and inside the momentum, as in the paper.
            Keras's `weight_decay`, which is outside the momentum, is not accepted.
        grad_averaging: Multiply what is added to m by 1 - `beta_1`, as Adam does: steps are smaller
            by that factor.
        exclude: Names (`variable.name`) of variables without weight decay.
        name: The optimizer's name.
        **kwargs: Arguments of any Keras optimizer: `clipnorm`, `use_ema`,
            `gradient_accumulation_steps`, ….

    Raises:
        UserError: An argument is out of range.

    Example:
        ```python
        optimizer = kdist.optimizers.NovoGrad(0.01, weight_decay_rate=1e-3)
        ```

    Source: Ginsburg et al. 2019, "Stochastic Gradient Methods with Layer-wise Adaptive Moments for
    Training of Deep Networks", algorithm 1.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        *,
        beta_1: float = 0.95,
        beta_2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay_rate: float = 0.0,
        grad_averaging: bool = False,
        exclude: Sequence[str] = (),
        name: str = "novograd",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            weight_decay_rate=weight_decay_rate,
            exclude=exclude,
            name=name,
            options=kwargs,
        )
        self.beta_1 = checked_number("beta_1", beta_1, below=1)
        self.beta_2 = checked_number("beta_2", beta_2, below=1)
        self.epsilon = checked_number("epsilon", epsilon, above=0)
        self.grad_averaging = grad_averaging

    def build(self, variables: list[keras.Variable]) -> None:
        """Make a momentum for every variable, and one number for its gradient's norm."""
        if self.built:
            return
        super().build(variables)
        self.squared_norms = [
            self.add_variable((), dtype=variable.dtype, name=f"{variable.name}_squared_norm")
            for variable in variables
        ]

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable."""
        gradient = dense_gradient(gradient, variable)
        index = self._get_variable_index(variable)
        momentum, squared_norm = self.momentums[index], self.squared_norms[index]
        now = ops.sum(ops.square(gradient))
        average = self.beta_2 * squared_norm + (1 - self.beta_2) * now
        # It is 0 before the first gradient, which may come late in a layer that was frozen.
        self.assign(squared_norm, ops.where(ops.equal(squared_norm, 0), now, average))
        step = gradient / (ops.sqrt(squared_norm) + self.epsilon)
        if not self.excluded[index]:
            step = step + self.weight_decay_rate * variable
        if self.grad_averaging:
            step = (1 - self.beta_1) * step
        self.assign(momentum, self.beta_1 * momentum + step)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * momentum)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return super().get_config() | {
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "grad_averaging": self.grad_averaging,
        }
