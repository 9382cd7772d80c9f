"""`GradientNoiseScale`: how large a global batch still pays off."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .._upstream.internals import overridden_steps
from ..arguments import as_real, positive_integer
from ..distribute import telemetry
from ..distribute.exact_strategy import ExactStrategy
from ..errors import UserError
from ..runs.text import count
from .resumable import ResumableCallback


class GradientNoiseScale(ResumableCallback):
    """Measures the global batch size beyond which larger batches and more replicas stop helping.

    The simple noise scale (McCandlish et al. 2018) says how noisy the gradient of one sample is:
    its variance, summed over all weights, divided by the squared norm of the true gradient,
    tr(Σ) / |G|². It is a batch size. With a batch much smaller than it, doubling the batch halves
    the steps that training needs. With a batch much larger, doubling it saves hardly any steps. It
    grows as the model learns, so use the value of the last epochs.

    It is estimated by comparing the gradient norms of parts of a batch with that of the whole
    batch. With several replicas the parts are the replicas' own gradients, which each step computes
    anyway. With one replica they are the gradients of the two halves of a batch, which are computed
    separately every `every` steps. After each epoch it prints `Gradient noise scale: 1,210 images`,
    and adds `gradient_noise_scale` to `logs`; it is NaN while the noise is too large for an
    estimate.

    The model has to be created under `kdist.MirroredStrategy` (`replicas=1` works too) and use
    Keras's own `train_step`.

    Args:
        smoothing: Decay of the running averages at each measurement, at least 0 and below 1.
        every: On one replica: steps between measurements. A measurement costs about as much as one
            step, so the default adds 2 %.
        verbose: 0 prints nothing and only fills `logs`.

    Attributes:
        noise_scale: The noise scale after the last epoch, in samples.

    Raises:
        UserError: If an argument is out of range, or, when training begins, if the model was not
            created under `kdist.MirroredStrategy` or has its own `train_step`.

    Example:
        ```python
        history = model.fit(train, epochs=3, callbacks=[GradientNoiseScale()])
        history.history["gradient_noise_scale"]
        ```

    Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1.
    Batch norm and dropout make a sample's gradient depend on its batch, which the theory does not
    cover: read the value as an order of magnitude.
    """

    initial_state: ClassVar[Mapping[str, Any]] = {
        "sums": [0.0] * len(telemetry.FIELDS),
        "first_step": None,
    }
    sums: Sequence[float]
    first_step: int | None

    def __init__(self, *, smoothing: float = 0.98, every: int = 50, verbose: int = 1) -> None:
        super().__init__(verbose=verbose)
        fraction = as_real(smoothing)
        if fraction is None or not 0 <= fraction < 1:
            raise UserError(
                f"smoothing is {smoothing!r}, but has to be a number of at least 0 and below 1:"
                " pass the decay of the running averages, for example 0.98."
            )
        self.smoothing = fraction
        self.every = positive_integer("every", every, hint="pass steps between measurements")
        self.noise_scale = math.nan
        self._norms: telemetry.GradientNorms | None = None
        self._has_trained = False  # a step of this fit

    def get_state(self) -> dict[str, Any]:
        """Return what was measured so far, also in the middle of an epoch."""
        if self._has_trained:
            self._read()
        return super().get_state()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Start measuring; reject a model whose gradients cannot be read."""
        super().on_train_begin(logs)
        self.noise_scale = math.nan
        self._has_trained = False
        strategy = self.model.distribute_strategy
        if not isinstance(strategy, ExactStrategy):
            raise UserError(
                f"{self.model.name} was not made under kdist.MirroredStrategy, from which"
                " GradientNoiseScale reads the gradients: make it in"
                " kdist.MirroredStrategy(replicas=1).build(lambda: ...), or remove the callback."
            )
        if "train_step" in overridden_steps(self.model):
            raise UserError(
                f"{type(self.model).__name__} has its own train_step, whose gradients"
                " GradientNoiseScale cannot read: remove the callback."
            )
        self._norms = telemetry.GradientNorms(
            self.model, smoothing=self.smoothing, every=self.every, first_step=self.first_step
        )
        self._norms.restore(self.sums)
        strategy.model_state(self.model).gradient_norms = self._norms
        self.model.make_train_function(force=True)  # to be traced anew, at its first step

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Note that there is something to read."""
        super().on_train_batch_end(batch, logs)
        self._has_trained = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the noise scale and add it to `logs`."""
        super().on_epoch_end(epoch, logs)
        if self._norms is None:
            return
        self._read()
        self.noise_scale = noise_scale(**self._named_sums)
        if not math.isnan(self.noise_scale):
            self.print_line(f"Gradient noise scale: {count(self.noise_scale, 'image')}")
        elif self._named_sums["large_count"]:
            self.print_line("Gradient noise scale: unknown so far, the gradient is too noisy")
        else:
            self.print_line(
                "Gradient noise scale: nothing measured yet; it needs batches of 2 or more"
            )
        if logs is not None:
            logs["gradient_noise_scale"] = self.noise_scale

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Print what the value means for the global batch, and stop measuring."""
        if not math.isnan(self.noise_scale):
            sums = self._named_sums
            global_batch = sums["large_count"] / sums["large_inverse_sizes"]
            self.print_line(
                "More replicas help up to a global batch of about"
                f" {count(self.noise_scale, 'image')}; it is {global_batch:.0f}"
            )
        self.model.distribute_strategy.model_state(self.model).gradient_norms = None
        self.model.train_function = None
        self._norms = None
        super().on_train_end(logs)

    def _read(self) -> None:
        if self._norms is not None:
            self.sums = self._norms.read()
            self.first_step = self._norms.first_step

    @property
    def _named_sums(self) -> dict[str, float]:
        return dict(zip(telemetry.FIELDS, self.sums, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_norms": None}


def noise_scale(
    *,
    small_squared_norms: float,
    small_inverse_sizes: float,
    small_count: float,
    large_squared_norms: float,
    large_inverse_sizes: float,
    large_count: float,
) -> float:
    """Estimate the simple noise scale, tr(Σ) / |G|², from sums of squared gradient norms.

    The squared norm of a gradient over b samples is |G|² + tr(Σ) / b on average: G is the true
    gradient and tr(Σ) the variance of one sample's gradient, summed over weights. Measurements with
    two values of b, a small and a large batch, give two equations for the two unknowns.

    The arguments are the sums that `kdist.distribute.telemetry.FIELDS` lists.

    Args:
        small_squared_norms: Sum of the squared norms of the small batches' gradients.
        small_inverse_sizes: Sum of 1 / samples over the small batches.
        small_count: Number of small batches.
        large_squared_norms: Sum of the squared norms of the large batches' gradients.
        large_inverse_sizes: Sum of 1 / samples over the large batches.
        large_count: Number of large batches.

    Returns:
        The noise scale in samples; NaN if nothing was measured or the estimate of |G|² is not
        above 0.

    Example:
        >>> noise_scale(
        ...     small_squared_norms=6.0, small_inverse_sizes=0.5, small_count=2,
        ...     large_squared_norms=2.0, large_inverse_sizes=0.125, large_count=1,
        ... )
        8.0
    """
    if not (small_count and large_count):
        return math.nan
    small, per_small = small_squared_norms / small_count, small_inverse_sizes / small_count
    large, per_large = large_squared_norms / large_count, large_inverse_sizes / large_count
    if not per_small > per_large:
        return math.nan
    noise = (small - large) / (per_small - per_large)
    signal = large - noise * per_large
    return max(noise, 0.0) / signal if signal > 0 else math.nan
