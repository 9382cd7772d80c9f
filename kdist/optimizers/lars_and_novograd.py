"""`LARS` and `NovoGrad`: optimizers for large batches that scale the step of each layer."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from ..arguments import number_within
from ..errors import UserError

_EPSILON = 1e-8  # added to divisors


class LayerwiseOptimizer(keras.optimizers.Optimizer):
    """Base class with a momentum per variable, and weight decay inside the momentum.

    `weight_decay_rate` is the weight decay of the paper. Keras's `weight_decay` is not accepted:
    Keras shrinks the weights outside the momentum, unlike both papers.
    """

    def __init__(
        self, learning_rate: Any, *, weight_decay_rate: float, name: str, **options: Any
    ) -> None:
        if options.get("weight_decay") is not None:
            raise UserError(
                f"received weight_decay={options['weight_decay']!r}, which Keras applies outside"
                " the momentum: pass weight_decay_rate instead"
            )
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.weight_decay_rate = number_within("weight_decay_rate", weight_decay_rate)

    def build(self, variables: list[keras.Variable]) -> None:
        """Create a momentum for every variable."""
        if not self.built:
            super().build(variables)
            self.momentums = self.add_optimizer_variables(variables, "momentum")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        config: dict[str, Any] = super().get_config()
        del config["weight_decay"]
        return config | {"weight_decay_rate": self.weight_decay_rate}


def dense_gradient(gradient: Any, variable: Any) -> Any:
    """Convert a gradient to a dense tensor; an embedding's gradient has only the rows in use."""
    return tf.cast(tf.convert_to_tensor(gradient), variable.dtype)


@keras.saving.register_keras_serializable(package="kdist")
class LARS(LayerwiseOptimizer):
    """Layer-wise adaptive rate scaling: momentum SGD for global batches of thousands.

    With w the weights of a layer, g their gradient, η `trust_coefficient` and β
    `weight_decay_rate`, a step is

        λ = η ‖w‖ / (‖g‖ + β ‖w‖)
        v ← momentum · v + learning_rate · λ · (g + β w)
        w ← w - v

    so the size of a layer's step is proportional to its weights, not to its gradient. If ‖w‖ or
    ‖g‖ is 0, λ is 1. Biases and batch norms (variables named `bias`, `beta` and `gamma`) get
    neither λ nor decay: plain momentum.

    Args:
        learning_rate: A rate, a Keras schedule or a callable. As λ is small, rates are larger than
            for SGD: 1 to 30.
        momentum: At least 0 and below 1.
        trust_coefficient: η, above 0.
        weight_decay_rate: β, the factor of an L2 penalty's gradient, as in the paper. Keras's
            decoupled `weight_decay` is not accepted.
        name: The optimizer's name.
        **kwargs: Arguments of any Keras optimizer: `clipnorm`, `use_ema`,
            `gradient_accumulation_steps`, ….

    Raises:
        UserError: An argument is out of range.

    Examples:
        ```python
        optimizer = kdist.optimizers.LARS(kdist.optimizers.WarmUp(10.0, steps=200))
        ```

    Source: You, Gitman & Ginsburg 2017, "Large Batch Training of Convolutional Networks",
    algorithm 1. The exception for biases and batch norms is from You et al. 2018, "ImageNet
    Training in Minutes".
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        *,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
        weight_decay_rate: float = 0.0,
        name: str = "lars",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay_rate=weight_decay_rate, name=name, **kwargs)
        self.momentum = number_within("momentum", momentum, below=1)
        self.trust_coefficient = number_within("trust_coefficient", trust_coefficient, above=0)

    def build(self, variables: list[keras.Variable]) -> None:
        """Create momentums, and note biases and norms, which get no layer-wise rate."""
        super().build(variables)
        # By index: `update_step` gets TensorFlow's variables, and their names differ from Keras's.
        self.excluded = [variable.name in ("bias", "beta", "gamma") for variable in variables]

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = dense_gradient(gradient, variable)
        index = self._get_variable_index(variable)
        if not self.excluded[index]:
            weights = ops.convert_to_tensor(variable)
            weight_norm, gradient_norm = (
                ops.sqrt(ops.sum(ops.square(x))) for x in (weights, gradient)
            )
            divisor = gradient_norm + self.weight_decay_rate * weight_norm + _EPSILON
            trust = self.trust_coefficient * weight_norm / divisor
            are_positive = ops.logical_and(weight_norm > 0, gradient_norm > 0)
            rate = rate * ops.where(are_positive, trust, 1.0)
            gradient = gradient + self.weight_decay_rate * weights
        velocity = self.momentums[index]
        self.assign(velocity, self.momentum * velocity + rate * gradient)
        self.assign_sub(variable, velocity)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        own = {"momentum": self.momentum, "trust_coefficient": self.trust_coefficient}
        return super().get_config() | own


@keras.saving.register_keras_serializable(package="kdist")
class NovoGrad(LayerwiseOptimizer):
    """NovoGrad: normalizes gradients by layer, for large batches, with half of Adam's memory.

    With w the weights of a layer, g their gradient and d `weight_decay_rate`, a step is

        v ← beta_2 · v + (1 - beta_2) · ‖g‖²        (one number per layer; first ‖g‖²)
        m ← beta_1 · m + (g / √v + d w)
        w ← w - learning_rate · m

    Args:
        learning_rate: A rate, a Keras schedule or a callable. The paper uses about 0.01 to 0.05.
        beta_1: Momentum, at least 0 and below 1.
        beta_2: Decay of the norm's moving average, at least 0 and below 1.
        weight_decay_rate: d, decoupled from the norm and inside the momentum, as in the paper.
            Keras's `weight_decay` is outside the momentum and is not accepted.
        name: The optimizer's name.
        **kwargs: Arguments of any Keras optimizer: `clipnorm`, `use_ema`,
            `gradient_accumulation_steps`, ….

    Raises:
        UserError: An argument is out of range.

    Examples:
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
        weight_decay_rate: float = 0.0,
        name: str = "novograd",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay_rate=weight_decay_rate, name=name, **kwargs)
        self.beta_1 = number_within("beta_1", beta_1, below=1)
        self.beta_2 = number_within("beta_2", beta_2, below=1)

    def build(self, variables: list[keras.Variable]) -> None:
        """Create a momentum for every variable, and a scalar for its gradient's squared norm."""
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
        squared_norm_now = ops.sum(ops.square(gradient))
        average = self.beta_2 * squared_norm + (1 - self.beta_2) * squared_norm_now
        # A squared norm of 0 means: no gradient yet, as in a layer that was frozen at first.
        is_first = ops.equal(squared_norm, 0)
        self.assign(squared_norm, ops.where(is_first, squared_norm_now, average))
        step = gradient / (ops.sqrt(squared_norm) + _EPSILON) + self.weight_decay_rate * variable
        self.assign(momentum, self.beta_1 * momentum + step)
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * momentum)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        return super().get_config() | {"beta_1": self.beta_1, "beta_2": self.beta_2}
