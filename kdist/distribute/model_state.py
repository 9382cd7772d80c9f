"""`ModelState`: what a strategy stores for a model."""

from dataclasses import dataclass, field

from .. import _upstream
from .gradient_norms import GradientNorms
from .step_telemetry import StepTelemetry


@dataclass
class ModelState:
    """Stored for a model as long as the model exists."""

    is_compared: bool = False
    """Whether the workers have compared the model as it is compiled."""
    gradient_norms: GradientNorms | None = None
    """Measures the gradients of its steps, if not `None`."""
    telemetry: StepTelemetry | None = None
    """Measures its steps, if not `None`."""
    is_jitted: bool = False
    """Whether its step is compiled with XLA inside `run`."""
    auto_steps: _upstream.AutoSteps = field(default_factory=_upstream.AutoSteps)
    """The choice of `compile(steps_per_execution="auto")`."""

    def reset(self) -> None:
        """Reset what depends on how the model was compiled."""
        self.is_jitted = False
        self.is_compared = False
        self.auto_steps = _upstream.AutoSteps()
