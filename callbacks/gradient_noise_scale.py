"""How large a global batch still pays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .. import _upstream, gradient_norms
from ..arguments import as_real, positive_integer
from ..errors import UserError
from ..strategy import MirroredStrategy
from .resumable import ResumableCallback


class GradientNoiseScale(ResumableCallback):
    """Measures the batch beyond which more replicas stop paying.

    The simple noise scale is the variance of one sample's gradient, summed over weights, over the
    squared norm of the true gradient: tr(Σ) / |G|². A batch much smaller than it wastes no sample:
    twice the batch needs half the steps. A batch much larger gains next to nothing. It grows while
    a model learns, so the value of the last epochs counts.

    It comes from the norms of the gradients of parts of a batch against the whole batch's: with
    several replicas the replicas' own, which the step has anyway; with one, those of both halves of
    a batch, computed besides every so many steps. After each epoch it prints
    `Gradient noise scale: 1210 images` and puts `gradient_noise_scale` into `logs`, NaN as long as
    noise hides the gradient altogether.

    The model has to be made under `kdist.MirroredStrategy`, `replicas=1` included, and train by
    Keras's own `train_step`.

    Args:
        smoothing: What older measurements keep of their weight at each new one, from 0 to below 1.
        every: On one replica: steps from one measurement, which costs about another step, to the
            next. The default costs 2 %.
        verbose: 0 prints nothing and only fills `logs`.

    Attributes:
        noise_scale: The last epoch's, in samples.

    Raises:
        UserError: If an argument is out of range, or, when training begins, if the model is not
            made under `kdist.MirroredStrategy` or has its own `train_step`.

    Example:
        ```python
        history = model.fit(train, epochs=3, callbacks=[GradientNoiseScale()])
        history.history["gradient_noise_scale"]
        ```

    Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1.
    Batch norm and dropout make a sample's gradient depend on its batch, which the theory leaves
    out: take the value for an order of magnitude.
    """

    fresh_state: ClassVar[Mapping[str, Any]] = {"sums": [0.0] * len(gradient_norms.FIELDS)}
    sums: Sequence[float]

    def __init__(self, *, smoothing: float = 0.98, every: int = 50, verbose: int = 1) -> None:
        super().__init__(verbose=verbose)
        fraction = as_real(smoothing)
        if fraction is None or not 0 <= fraction < 1:
            raise UserError(
                f"smoothing is {smoothing!r}, but has to be a number from 0 to below 1: pass the"
                " weight that older measurements keep, for example 0.98."
            )
        self.smoothing = fraction
        self.every = positive_integer("every", every, mend="pass steps between measurements")
        self.noise_scale = math.nan
        self._norms: gradient_norms.GradientNorms | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Have the model's step measured; refuse a model whose gradients are out of reach."""
        super().on_train_begin(logs)
        self.noise_scale = math.nan
        if not isinstance(self.model.distribute_strategy, MirroredStrategy):
            raise UserError(
                f"{self.model.name} is not made under kdist.MirroredStrategy, which"
                " GradientNoiseScale reads gradients from: make it in"
                " kdist.MirroredStrategy(replicas=1).build(lambda: ...), or leave the callback out."
            )
        if "train_step" in _upstream.own_steps(self.model):
            raise UserError(
                f"{type(self.model).__name__} has its own train_step, whose gradients"
                " GradientNoiseScale does not see: leave the callback out."
            )
        self._norms = gradient_norms.GradientNorms(
            self.model, smoothing=self.smoothing, every=self.every
        )
        self._norms.restore(self.sums)
        gradient_norms.observed[self.model] = self._norms
        self.model.make_train_function(force=True)  # to be traced anew, at its first step

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Print the noise scale and add it to `logs`."""
        super().on_epoch_end(epoch, logs)
        if self._norms is None:
            return
        self.sums = self._norms.read()
        self.noise_scale = noise_scale(**self._named_sums)
        if not math.isnan(self.noise_scale):
            self.say(f"Gradient noise scale: {self.noise_scale:.0f} images")
        elif self._named_sums["wholes"]:
            self.say("Gradient noise scale: not known yet, noise hides the gradient")
        else:
            self.say("Gradient noise scale: nothing measured yet; it takes batches of 2 or more")
        if logs is not None:
            logs["gradient_noise_scale"] = self.noise_scale

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Say what it means for the number of replicas, and let the step be Keras's again."""
        if not math.isnan(self.noise_scale):
            sums = self._named_sums
            self.say(
                f"More replicas pay up to a global batch of about {self.noise_scale:.0f} images;"
                f" it is {sums['wholes'] / sums['inverse_whole']:.0f}"
            )
        gradient_norms.observed.pop(self.model, None)
        self.model.train_function = None
        self._norms = None
        super().on_train_end(logs)

    @property
    def _named_sums(self) -> dict[str, float]:
        return dict(zip(gradient_norms.FIELDS, self.sums, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_norms": None}


def noise_scale(
    *,
    part: float,
    inverse_part: float,
    parts: float,
    whole: float,
    inverse_whole: float,
    wholes: float,
) -> float:
    """The simple noise scale from sums of `kdist.gradient_norms.FIELDS`.

    A gradient over b samples has |G|² + tr(Σ) / b for the mean of its squared norm; two sizes of b
    give two equations for both.

    Returns:
        tr(Σ) / |G|² in samples; NaN if there is nothing to compare or |G|² comes out below 0.

    Example:
        >>> halves = {"part": 6.0, "inverse_part": 0.5, "parts": 2}
        >>> noise_scale(**halves, whole=2.0, inverse_whole=0.125, wholes=1)
        8.0
    """
    if not (parts and wholes):
        return math.nan
    small, per_small = part / parts, inverse_part / parts
    large, per_large = whole / wholes, inverse_whole / wholes
    if not per_small > per_large:
        return math.nan
    noise = (small - large) / (per_small - per_large)
    signal = large - noise * per_large
    return max(noise, 0.0) / signal if signal > 0 else math.nan
