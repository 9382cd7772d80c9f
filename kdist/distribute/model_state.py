"""What a strategy keeps of a model that is trained under it."""

from dataclasses import dataclass, field

from .. import _upstream
from .gradient_norms import GradientNorms


@dataclass
class ModelState:
    """State of a model, as long as the model lives."""

    global_batch: int | None = None
    """Samples in a full batch of this fit, until its first training step has looked at it."""
    is_prepared: bool = False
    """Whether the model has been looked at, so that it is warned of once."""
    warned: set[str] = field(default_factory=set)
    """Lines of the user's program, and layers, that were warned of."""
    gradient_norms: GradientNorms | None = None
    """What measures the gradients of its steps, while something does."""
    is_jitted: bool = False
    """Whether its step is compiled by XLA inside `run`."""
    auto_steps: _upstream.AutoSteps = field(default_factory=_upstream.AutoSteps)
    """What `compile(steps_per_execution="auto")` has chosen."""

    def reset(self) -> None:
        """Forget what holds for the model as it was compiled."""
        self.is_jitted = False
        self.auto_steps = _upstream.AutoSteps()
