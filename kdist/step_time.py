"""The time of a training step on N replicas, on paper: pure arithmetic."""

import dataclasses
import re
from collections.abc import Iterable

from .arguments import as_integer, as_real, positive_integer, positive_number
from .errors import UserError
from .links import Link

SCALINGS = ("weak", "strong")

# Of a step's three products of equal size two are the backward pass's: Kaplan et al. 2020,
# "Scaling Laws for Neural Language Models", section 2.1.
_BACKWARD_SHARE = 2 / 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTime:
    """A predicted step.

    Args:
        replicas: How many train together.
        compute_seconds: What each replica computes.
        communication_seconds: All collectives of the step.
        hidden_seconds: The part of them that runs during the backward pass.
    """

    replicas: int
    compute_seconds: float
    communication_seconds: float
    hidden_seconds: float

    @property
    def seconds(self) -> float:
        """The step: what is computed, then what is communicated and not hidden."""
        return self.compute_seconds + (self.communication_seconds - self.hidden_seconds)

    @property
    def efficiency(self) -> float:
        """Samples a second and replica over those of one replica alone."""
        return self.compute_seconds / self.seconds

    @property
    def speedup(self) -> float:
        """Samples a second of all replicas over those of one alone."""
        return self.replicas * self.efficiency


def ring_seconds(size_bytes: float, *, replicas: int, link: Link, collectives: int = 1) -> float:
    """Seconds of ring all-reduces that sum `size_bytes` in all over N replicas.

        C * 2 (N - 1) * alpha  +  2 (N - 1) / N * S / B

    C collectives, a latency of alpha seconds, S bytes in all, B bytes a second. Every replica
    sends 1/N of the buffer to the next in each of 2 (N - 1) rounds: N - 1 to sum (reduce-scatter)
    and N - 1 to spread the sums (all-gather). The second term is the least any algorithm can do,
    and hardly grows with N; the first does, which is why gradients go in few large buffers. The
    additions are left out.

    Args:
        size_bytes: Bytes on one replica, of all collectives together, above 0.
        replicas: How many replicas form the ring.
        link: The slowest link of the ring.
        collectives: All-reduces that the bytes are divided among.

    Returns:
        The seconds; 0 for one replica.

    Raises:
        UserError: If a number is out of its range.

    Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations"; as alpha and beta in Thakur, Rabenseifner & Gropp 2005, "Optimization of
    collective communication operations in MPICH"; nccl-tests, doc/PERFORMANCE.md, whose bus
    bandwidth is B. Many replicas and a small buffer are no case for it: the first term says too
    much where NCCL takes a tree.

    Example:
        >>> slow = Link(name="slow", latency_seconds=0.5, bytes_per_second=100)
        >>> ring_seconds(1000, replicas=2, link=slow)
        11.0
    """
    size = positive_number("size_bytes", size_bytes, mend="pass the bytes of the buffer")
    count = positive_integer("replicas", replicas, mend="pass how many form the ring")
    calls = positive_integer("collectives", collectives, mend="pass how many all-reduces there are")
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
    """Predict the step on N replicas from what one replica measured.

        step      = compute + gradients - hidden + small
        gradients = ring_seconds(gradient_bytes, collectives)
        hidden    = min(overlap * gradients, 2/3 compute)
        small     = small_collectives * 2 ceil(log2 N) * alpha

    Gradients can be summed while the backward pass, two thirds of the compute, makes further ones.
    The statistics of synchronized batch norm cannot: the next layer waits for them. They are so
    small that only latency counts, and a tree, which sums pairs of pairs and sends the sum back,
    has fewer rounds than a ring (Thakur, Rabenseifner & Gropp 2005; NCCL has trees since 2.4).

    `"weak"` keeps the batch of a replica, and so its compute. `"strong"` keeps the global batch:
    each replica computes 1/N, which presumes that a sample takes as long in a small batch as in a
    large one; on a GPU it takes longer, so this is the best case.

    What it leaves out makes real steps longer: replicas that wait for the slowest of them, input
    pipelines, copies into buffers, networks shared with others. `python -m benchmarks.prediction`
    tells how far it is off published tables.

    Args:
        compute_seconds: A step of one replica: with a replica's batch for `"weak"`, with the
            global batch for `"strong"`.
        gradient_bytes: Of all gradients of one replica; 4 for each weight in float32.
        replicas: How many replicas to predict for.
        link: The slowest link between neighbours, see `kdist.links.choose_link`.
        collectives: All-reduces a step that the gradients are divided among.
        small_collectives: Further all-reduces a step, two for each layer of kdist's synchronized
            batch norm.
        overlap: Share of the gradients' communication that runs during the backward pass, from 0
            to 1.
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
    compute = positive_number("compute_seconds", compute_seconds, mend="measure a step's seconds")
    count = positive_integer("replicas", replicas, mend="pass how many to predict for")
    small_calls = as_integer(small_collectives)
    if small_calls is None or small_calls < 0:
        raise UserError(
            f"small_collectives is {small_collectives!r}, but has to be an integer of at least 0:"
            " pass two for each synchronized batch norm, 0 without"
        )
    share = as_real(overlap)
    if share is None or not 0 <= share <= 1:
        raise UserError(
            f"overlap is {overlap!r}, but has to be a share from 0 to 1: pass 0 where gradients"
            " are summed after the backward pass"
        )
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


def parse_replicas(text: str) -> tuple[int, ...]:
    """The counts of replicas in a list such as `8,64,512`.

    Args:
        text: Integers of at least 1 with commas between them; spaces are fine.

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
            f"{text!r} has {wrong[0]!r} in it, but every count of replicas has to be an integer of"
            " at least 1: pass them with commas between, such as 8,64,512"
        )
    return tuple(int(part) for part in parts)


def format_steps(steps: Iterable[StepTime]) -> str:
    """Predicted steps as lines of text, a row for each.

    Args:
        steps: What `predict_step` returned.

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
