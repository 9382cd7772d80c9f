"""What optimizers share that treat each layer by the norm of its gradient."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..errors import UserError
from .arguments import checked_names, checked_number


class LayerwiseOptimizer(keras.optimizers.Optimizer):
    """A momentum for every variable, a decay inside it, and variables that are excluded.

    Args:
        learning_rate: A rate, a Keras schedule or a callable.
        weight_decay_rate: The decay of the paper.
        exclude: Names (`variable.name`) of variables that are treated otherwise.
        name: The optimizer's name.
        options: Keras's own arguments; `weight_decay`, which shrinks the weights outside the
            momentum, where the papers do not, is refused.
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
        _refuse_weight_decay(options)
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.weight_decay_rate = checked_number("weight_decay_rate", weight_decay_rate)
        self.exclude = checked_names("exclude", exclude)

    def build(self, variables: list[keras.Variable]) -> None:
        """Make a momentum for every variable."""
        if self.built:
            return
        super().build(variables)
        self.momentums = self.add_optimizer_variables(variables, "momentum")
        # By position: `update_step` gets TensorFlow's variables, whose names are others.
        self.excluded = [variable.name in self.exclude for variable in variables]

    def get_config(self) -> dict[str, Any]:
        """The arguments, for saving."""
        config: dict[str, Any] = super().get_config()
        del config["weight_decay"]
        return config | {
            "weight_decay_rate": self.weight_decay_rate,
            "exclude": list(self.exclude),
        }


def whole_gradient(gradient: Any, variable: Any) -> Any:
    """The gradient as one tensor, for its norm: that of an embedding comes as some rows."""
    return tf.cast(tf.convert_to_tensor(gradient), variable.dtype)


def _refuse_weight_decay(options: Mapping[str, Any]) -> None:
    """Keras's decay is outside the momentum, where neither paper has it."""
    if options.get("weight_decay") is not None:
        raise UserError(
            f"received weight_decay={options['weight_decay']!r}, by which Keras shrinks the weights"
            " outside the momentum; the paper's decay is weight_decay_rate"
        )
