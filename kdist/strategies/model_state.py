"""`ModelState`: the data that a strategy keeps for a model."""

from dataclasses import dataclass
from typing import Any


@dataclass
class ModelState:
    """The state of a model under a strategy, kept as long as the model exists."""

    is_compared: bool = False
    """Whether the workers have compared the model as it is compiled."""
    prepared: tuple[Any, ...] = ()
    """The parts of the model that were prepared last."""
    is_jitted: bool = False
    """Whether the model's step is compiled with XLA inside `run`."""
    chosen_steps: dict[int | None, int] | None = None
    """Steps per execution by global batch; `None` if the model was not compiled with "auto"."""
    batch_rows: int | None = None
    """The number of samples of a batch, over all replicas; `None` if it is unknown."""
    is_evaluating: bool = False
    """Whether the model is evaluating or predicting, with one step per execution."""

    def reset(self) -> None:
        """Reset the state, as the model is compiled anew."""
        self.is_jitted = False
        self.is_compared = False
        self.prepared = ()
        self.chosen_steps = None
        self.is_evaluating = False
