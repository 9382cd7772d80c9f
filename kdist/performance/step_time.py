"""Predict the time of a training step on N replicas: pure arithmetic."""

import dataclasses
import re
from collections.abc import Iterable

from ..arguments import as_integer, as_real, positive_integer, positive_number
from ..errors import UserError
from .links import Link

SCALINGS = ("weak", "strong")

# Of a step's three products of equal size two are the backward pass's: Kaplan et al. 2020,
# "Scaling Laws for Neural Language Models", section 2.1.
_BACKWARD_SHARE = 2 / 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """A predicted step.

    Args:
        replicas: Number of replicas.
        compute_seconds: Computation time of each replica.
        communication_seconds: Time of all collectives of the step.
        hidden_seconds: The part of it that overlaps with the backward pass.
    """

    replicas: int
    compute_seconds: float
    communication_seconds: float
    hidden_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of the step: computation, plus communication that is not hidden."""
        return self.compute_seconds + (self.communication_seconds - self.hidden_seconds)

    @property
    def efficiency(self) -> float:
        """Samples per second and replica, divided by those of a single replica."""
        return self.compute_seconds / self.seconds

    @property
    def speedup(self) -> float:
        """Samples per second of all replicas, divided by those of a single replica."""
        return self.replicas * self.efficiency


def ring_seconds(size_bytes: float, *, replicas: int, link: Link, collectives: int = 1) -> float:
    """Predict the seconds of ring all-reduces that sum `size_bytes` in total over N replicas.

        C * 2 (N - 1) * alpha  +  2 (N - 1) / N * S / B

    C collectives, a latency of alpha seconds, S bytes in total, B bytes per second. Every replica
    sends 1/N of the buffer to the next in each of 2 (N - 1) rounds: N - 1 to sum (reduce-scatter)
    and N - 1 to distribute the sums (all-gather). The second term is the minimum for any algorithm
    and hardly grows with N; the first does, which is why gradients are sent in few large buffers.
    The time of the additions is neglected.

    Args:
        size_bytes: Bytes per replica, of all collectives together, above 0.
        replicas: Number of replicas in the ring.
        link: The slowest link of the ring.
        collectives: All-reduces that the bytes are divided among.

    Returns:
        The seconds; 0 for one replica.

    Raises:
        UserError: If a number is out of its range.

    Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations"; as alpha and beta in Thakur, Rabenseifner & Gropp 2005, "Optimization of
    collective communication operations in MPICH"; nccl-tests, doc/PERFORMANCE.md, whose bus
    bandwidth is B. For many replicas and small buffers the first term is too
    large, as NCCL then uses a tree.

    Example:
        >>> slow = Link(name="slow", latency_seconds=0.5, bytes_per_second=100)
        >>> ring_seconds(1000, replicas=2, link=slow)
        11.0
    """
    size = positive_number("size_bytes", size_bytes, hint="pass the bytes of the buffer")
    count = positive_integer("replicas", replicas, hint="pass how many form the ring")
    calls = positive_integer("collectives", collectives, hint="pass how many all-reduces there are")
    rounds = 2 * (count - 1)
    return calls * rounds * link.latency_seconds + rounds / count * size / link.bytes_per_second


def predict_step(
    *,
    compute_seconds: float,
    gradient_bytes: float,
    replicas: int,
    link: Link,
    collectives: int = 1,
    small_collectives: int = 0,
    overlap: float = 0.0,
    scaling: str = "weak",
) -> StepTime:
    """Predict the time of a step on N replicas from a measurement on one replica.

        step      = compute + gradients - hidden + small
        gradients = ring_seconds(gradient_bytes, collectives)
        hidden    = min(overlap * gradients, 2/3 compute)
        small     = small_collectives * 2 ceil(log2 N) * alpha

    Gradients can be summed while the backward pass, two thirds of the computation, computes further
    ones. The statistics of synchronized batch norm cannot: the next layer waits for them. They are
    so small that only latency matters, and a tree, which sums pairs of pairs and sends the sum
    back, has fewer rounds than a ring (Thakur, Rabenseifner & Gropp 2005; NCCL has trees since
    2.4).

    `"weak"` keeps the batch per replica, and so its computation. `"strong"` keeps the global batch:
    each replica computes 1/N. This assumes that a sample takes the same time in a small batch as in
    a large one; on a GPU it takes longer, so this is the best case.

    Real steps take longer, as the model neglects replicas that wait for the slowest one, input
    pipelines, copies into buffers and shared networks. `python -m benchmarks.prediction` shows its
    error against published tables.

    Args:
        compute_seconds: Seconds of a step on one replica: with the batch of one replica for
            `"weak"`, with the global batch for `"strong"`.
        gradient_bytes: Bytes of all gradients of one replica; 4 per weight in float32.
        replicas: Number of replicas to predict for.
        link: The slowest link between neighbors, see `kdist.performance.links.choose_link`.
        collectives: All-reduces per step that the gradients are divided among.
        small_collectives: Further all-reduces per step: two per synchronized batch norm of kdist.
        overlap: Fraction of the gradients' communication that overlaps with the backward pass, from
            0 to 1.
        scaling: `"weak"` or `"strong"`.

    Returns:
        The step's time, efficiency and speed-up.

    Raises:
        UserError: If a number is out of its range, or `scaling` is neither.

    Example:
        >>> link = Link(name="100 MB/s", latency_seconds=0, bytes_per_second=100e6)
        >>> step = predict_step(
        ...     compute_seconds=1.0, gradient_bytes=25e6, replicas=2, link=link
        ... )
        >>> step.seconds, step.efficiency, step.speedup
        (1.25, 0.8, 1.6)
    """
    compute = positive_number("compute_seconds", compute_seconds, hint="measure a step's seconds")
    count = positive_integer("replicas", replicas, hint="pass how many to predict for")
    small_calls = _check_small_collectives(small_collectives)
    share = _check_overlap(overlap)
    if scaling not in SCALINGS:
        raise UserError(f"scaling is {scaling!r}, but has to be one of {', '.join(SCALINGS)}.")
    if scaling == "strong":
        compute /= count
    gradients = ring_seconds(gradient_bytes, replicas=count, link=link, collectives=collectives)
    tree_rounds = 2 * (count - 1).bit_length()  # the logarithm, rounded up, without rounding
    small = small_calls * tree_rounds * link.latency_seconds
    return StepTime(
        replicas=count,
        compute_seconds=compute,
        communication_seconds=gradients + small,
        hidden_seconds=min(share * gradients, _BACKWARD_SHARE * compute),
    )


def _check_small_collectives(value: object) -> int:
    count = as_integer(value)
    if count is None or count < 0:
        raise UserError(
            f"small_collectives is {value!r}, but has to be an integer of at least 0: pass two for"
            " each synchronized batch norm, 0 without"
        )
    return count


def _check_overlap(value: object) -> float:
    share = as_real(value)
    if share is None or not 0 <= share <= 1:
        raise UserError(
            f"overlap is {value!r}, but has to be a fraction from 0 to 1: pass 0 if gradients are"
            " summed after the backward pass"
        )
    return share


def parse_replicas(text: str) -> tuple[int, ...]:
    """Parse a list of numbers of replicas such as `8,64,512`.

    Args:
        text: Integers of at least 1, separated by commas; spaces are allowed.

    Raises:
        UserError: If it is anything else.

    Example:
        >>> parse_replicas("8, 64,512")
        (8, 64, 512)
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch("0*[1-9][0-9]{0,8}", part)]
    if wrong:
        raise UserError(
            f"{text!r} contains {wrong[0]!r}, but numbers of replicas have to be integers of at"
            " least 1: separate them by commas, as in 8,64,512"
        )
    return tuple(int(part) for part in parts)


def format_steps(steps: Iterable[StepTime]) -> str:
    """Format predicted steps as a text table, one row per step.

    Args:
        steps: Results of `predict_step`.

    Example:
        >>> step = StepTime(
        ...     replicas=8, compute_seconds=0.3, communication_seconds=0.1, hidden_seconds=0.0
        ... )
        >>> print(format_steps([step]))
        replicas    step ms  compute ms  communication ms  hidden ms  speed-up  efficiency
               8     400.00      300.00            100.00       0.00      6.00      75.0 %
    """
    lines = ["replicas    step ms  compute ms  communication ms  hidden ms  speed-up  efficiency"]
    lines += [
        f"{step.replicas:8}  {1e3 * step.seconds:9.2f}  {1e3 * step.compute_seconds:10.2f}"
        f"  {1e3 * step.communication_seconds:16.2f}  {1e3 * step.hidden_seconds:9.2f}"
        f"  {step.speedup:8.2f}  {100 * step.efficiency:8.1f} %"
        for step in steps
    ]
    return "\n".join(lines)
