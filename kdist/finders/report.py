"""What `kdist find` prints and writes."""

from pathlib import Path

from ..atomic_files import atomic_write
from ..charts.learning_rate import learning_rate_figures
from .batch_size import BatchSize
from .memory import MemoryEstimate
from .one_try import TryResult
from .rate_curve import RateCurve

_MIB = 2**20
_LIMITS = {
    "memory": "the next larger does not fit into the memory",
    "data": "a larger global batch has more samples than the data",
    "most": "larger ones were not tried (--most)",
}


def batch_lines(found: BatchSize) -> list[str]:
    """Say which batch size to use."""
    return [
        f"largest batch size per replica that works: {found.largest} ({_LIMITS[found.limit]})",
        f"use --batch-size {found.batch_size}",
    ]


def rate_lines(curve: RateCurve) -> list[str]:
    """Say which learning rate to use."""
    doubt = curve.doubt
    how = f"unsure: {doubt}" if doubt else "the loss fell, and then rose again"
    return [
        f"suggested learning rate: {curve.suggestion:.2g}, a tenth of that at the lowest loss"
        f" ({curve.at_minimum:.2g})",
        f"steepest fall of the loss: at {curve.steepest:.2g}",
        f"{len(curve.rates)} steps, from {curve.rates[0]:.2g} to {curve.rates[-1]:.2g}: {how}",
    ]


def write_curve(curve: RateCurve, folder: Path, *, of: str) -> list[Path]:
    """Write the curve as a table and a picture; returns their paths.

    Args:
        curve: The curve.
        folder: That exists.
        of: What was trained.
    """
    figures, data = learning_rate_figures(
        curve.rates,
        curve.losses,
        curve.smoothed,
        suggestion=curve.suggestion,
        steepest=curve.steepest,
        of=of,
    )
    table, picture = folder / "learning-rate.csv", folder / "learning-rate.png"
    atomic_write(table, curve.to_csv())
    atomic_write(picture, figures[0].png(data))
    return [table, picture]


def memory_lines(estimate: MemoryEstimate) -> list[str]:
    """The parts of an estimate, and their sum."""
    parts = {
        "weights": estimate.weights,
        "optimizer": estimate.optimizer,
        "gradients": estimate.gradients,
        f"activations of {estimate.batch_size} samples": estimate.activations,
        "estimate per replica": estimate.total,
    }
    width = max(map(len, parts))
    lines = [f"{name:{width}}  {size / _MIB:10,.1f} MiB" for name, size in parts.items()]
    if estimate.any_length:
        lines.append(
            "the activations are more than that: the data do not say how long a sample is; pad to a"
            " fixed length, or pass --measure"
        )
    elif estimate.unknown:
        lines.append(
            f"not counted: {estimate.unknown} operations, such as loops, whose memory is only known"
            " when they run"
        )
    return lines


def measured_lines(
    half: MemoryEstimate, whole: MemoryEstimate, measured: tuple[TryResult, TryResult]
) -> list[str]:
    """Compare estimates with what two trainings took, one with half the batch.

    What does not grow with the batch has TensorFlow's own part in it: the graph, its kernels, and
    what is read ahead. What grows with it is what the estimate is about.

    Args:
        half: The estimate for half the batch.
        whole: The estimate.
        measured: Of the same two.
    """
    failed = next((one.why for one in measured if not one.works or one.peak is None), None)
    if failed is not None:
        return [f"measured: not enough {failed}" if failed else "measured: unknown on this system"]
    low, high = (one.peak or 0 for one in measured)
    samples = whole.batch_size - half.batch_size
    grown, expected = (high - low) / samples, (whole.total - half.total) / samples
    own = high - whole.batch_size * grown - (whole.total - whole.batch_size * expected)
    error = f" ({expected / grown - 1:+.0%})" if grown > 0 else ""
    return [
        f"measured per replica: {high / _MIB:,.1f} MiB with {whole.batch_size} samples,"
        f" {low / _MIB:,.1f} MiB with {half.batch_size}",
        f"per sample: {grown / _MIB:.3g} MiB measured, {expected / _MIB:.3g} MiB estimated{error}",
        f"besides: {own / _MIB:,.1f} MiB that do not depend on the batch, such as TensorFlow's"
        " graph and kernels",
    ]
