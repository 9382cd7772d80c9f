"""`LayerwiseOptimizer`: base class of optimizers that scale the step of each layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..errors import UserError
from .arguments import checked_names, checked_number


class LayerwiseOptimizer(keras.optimizers.Optimizer):
    """Base class with a momentum per variable, weight decay inside it, and excluded variables.

    Args:
        learning_rate: A rate, a Keras schedule or a callable.
        weight_decay_rate: The weight decay of the paper.
        exclude: Names (`variable.name`) of variables that are treated differently.
        name: The optimizer's name.
        options: Keras's own arguments. `weight_decay` is not accepted: it shrinks the weights
            outside the momentum, unlike in the papers.
    """

    def __init__(
        self,
        learning_rate: Any,
        *,
        weight_decay_rate: float,
        exclude: Sequence[str],
        name: str,
        options: Mapping[str, Any],
    ) -> None:
        _reject_weight_decay(options)
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.weight_decay_rate = checked_number("weight_decay_rate", weight_decay_rate)
        self.exclude = checked_names("exclude", exclude)

    def build(self, variables: list[keras.Variable]) -> None:
        """Make a momentum for every variable."""
        if self.built:
            return
        super().build(variables)
        self.momentums = self.add_optimizer_variables(variables, "momentum")
        # By index: `update_step` gets TensorFlow's variables, which have other names.
        self.excluded = [variable.name in self.exclude for variable in variables]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for saving."""
        config: dict[str, Any] = super().get_config()
        del config["weight_decay"]
        return config | {
            "weight_decay_rate": self.weight_decay_rate,
            "exclude": list(self.exclude),
        }


def dense_gradient(gradient: Any, variable: Any) -> Any:
    """Convert a gradient to a dense tensor; that of an embedding contains only some rows."""
    return tf.cast(tf.convert_to_tensor(gradient), variable.dtype)


def _reject_weight_decay(options: Mapping[str, Any]) -> None:
    """Reject Keras's `weight_decay`, which is outside the momentum, unlike in both papers."""
    if options.get("weight_decay") is not None:
        raise UserError(
            f"received weight_decay={options['weight_decay']!r}, with which Keras shrinks weights"
            " outside the momentum: pass weight_decay_rate, the paper's weight decay"
        )
