"""Which batch, rate and warm-up for N replicas: pure arithmetic over measurements."""

import dataclasses
import math
from collections.abc import Sequence

from ..optimizers.scaling import scale_learning_rate
from ..performance.links import Link
from ..performance.step_time import predict_step

# A noise scale is an order of magnitude (see `GradientNoiseScale`): a factor of 3 either way.
_NOISE_FACTOR = 3.0
_WARM_UP_EPOCHS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurements:
    """What was measured on one replica.

    Attributes:
        seconds: Of a step, by the samples in its batch.
        noise_scale: Of the gradient, in samples; NaN if unknown.
        rate: The learning rate that the range test suggests.
        rate_batch: The samples per step of that test.
        optimizer: Its name.
        gradient_bytes: Of all gradients.
        small_collectives: Messages of a step besides gradients: two per synchronized batch norm.
    """

    seconds: dict[int, float]
    noise_scale: float
    rate: float
    rate_batch: int
    optimizer: str
    gradient_bytes: float
    small_collectives: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """Settings for a number of replicas, and what to expect of them.

    Attributes:
        replicas: Number of replicas.
        batch_size: Samples per replica and step.
        learning_rate: For the global batch.
        warmup_epochs: Epochs of linear warm-up.
        speedup: How many times as fast the same loss is reached as on one replica with its own best
            batch size.
        slowest: The smallest speed-up that is consistent with the measurements.
        fastest: The largest.
    """

    replicas: int
    batch_size: int
    learning_rate: float
    warmup_epochs: int
    speedup: float
    slowest: float
    fastest: float

    @property
    def global_batch(self) -> int:
        """Samples per step over all replicas."""
        return self.replicas * self.batch_size

    def __str__(self) -> str:
        warm = f"warm-up {self.warmup_epochs} epochs, " if self.warmup_epochs else ""
        return (
            f"on {self.replicas} replicas: batch {self.batch_size} each, learning rate"
            f" {self.learning_rate:.2g}, {warm}{self.speedup:.1f} times as fast"
            f" ({self.slowest:.1f} to {self.fastest:.1f})"
        )


def advise(measured: Measurements, *, replicas: int, link: Link, rule: str = "auto") -> Advice:
    """Choose the batch size that reaches a loss soonest, and scale the learning rate to it.

    The time to a loss is the steps that it needs times the seconds of a step. A global batch of B
    samples needs `1 + noise_scale / B` times the steps of an infinite one (McCandlish et al. 2018,
    "An Empirical Model of Large-Batch Training", equation 2.7, with the noise scale in place of the
    critical batch). The seconds on several replicas are predicted from those on one, see
    `kdist.performance.step_time.predict_step`. Of the batch sizes that were measured, the best is
    chosen; one replica is given its own best.

    The range of the speed-up is that of a noise scale a third or three times as large.

    Args:
        measured: On one replica.
        replicas: How many there will be.
        link: Between them.
        rule: Scales the learning rate, as in `kdist.scale_learning_rate`.

    Raises:
        UserError: A number is out of range, or no rule is known for the optimizer.
    """
    best = _best_batch(measured, measured.noise_scale, replicas, link)
    noises = [measured.noise_scale * factor for factor in (1 / _NOISE_FACTOR, 1.0, _NOISE_FACTOR)]
    speedups = [_speedup(measured, noise, best, replicas, link) for noise in noises]
    if not math.isfinite(measured.noise_scale):
        # From a batch that is too large already, to one whose doubling halves the steps.
        speedups = [
            _speedup(measured, noise, best, replicas, link)
            for noise in (0.0, float(max(measured.seconds)), 1e9)
        ]
    global_batch = replicas * best
    return Advice(
        replicas=replicas,
        batch_size=best,
        learning_rate=scale_learning_rate(
            measured.rate,
            global_batch=global_batch,
            reference_batch=measured.rate_batch,
            rule=rule,
            optimizer=measured.optimizer,
        ),
        warmup_epochs=_WARM_UP_EPOCHS if global_batch > measured.rate_batch else 0,
        speedup=speedups[1],
        slowest=min(speedups),
        fastest=max(speedups),
    )


def _best_batch(measured: Measurements, noise: float, replicas: int, link: Link) -> int:
    """The batch size per replica; with an unknown noise scale the one with most samples/s."""
    known = math.isfinite(noise)

    def seconds(batch: int) -> float:
        if known:
            return _seconds_to_loss(measured, noise, batch, replicas, link)
        return _step_seconds(measured, batch, replicas, link) / batch

    return min(measured.seconds, key=seconds)


def _speedup(measured: Measurements, noise: float, batch: int, replicas: int, link: Link) -> float:
    alone = _best_batch(measured, noise, 1, link)
    return _seconds_to_loss(measured, noise, alone, 1, link) / _seconds_to_loss(
        measured, noise, batch, replicas, link
    )


def _seconds_to_loss(
    measured: Measurements, noise: float, batch: int, replicas: int, link: Link
) -> float:
    """Seconds for the steps that replace one step with an infinite batch."""
    return (1 + noise / (replicas * batch)) * _step_seconds(measured, batch, replicas, link)


def _step_seconds(measured: Measurements, batch: int, replicas: int, link: Link) -> float:
    step = predict_step(
        compute_seconds=measured.seconds[batch],
        gradient_bytes=measured.gradient_bytes,
        replicas=replicas,
        link=link,
        small_collectives=measured.small_collectives,
    )
    return step.seconds


def reasons(measured: Measurements, advice: Advice, link: Link) -> list[str]:
    """Say what the advice rests on, and how sure it is."""
    noise = measured.noise_scale
    batches: Sequence[int] = sorted(measured.seconds)
    lines = [
        f"seconds per step: measured on one replica, with {len(batches)} batch size"
        f"{'s' * (len(batches) > 1)} from {batches[0]} to {batches[-1]}",
        f"sums over replicas: predicted for {link.name} ({measured.gradient_bytes / 1e6:.1f} MB of"
        " gradients)",
        f"learning rate: {measured.rate:.2g} by a range test with batches of"
        f" {measured.rate_batch}, scaled to {advice.global_batch}",
    ]
    if math.isfinite(noise):
        lines.append(
            f"gradient noise scale: {noise:,.0f} samples, right to a factor of about"
            f" {_NOISE_FACTOR:g} early in training, and it grows: hence the range"
        )
    else:
        lines.append("gradient noise scale: unknown, too noisy for an estimate: hence the range")
    return lines
