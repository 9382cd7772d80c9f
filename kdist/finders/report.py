"""What `kdist find` prints and writes."""

from pathlib import Path

from ..charts.learning_rate import learning_rate_figures
from ..files import atomic_write
from .batch_size import BatchSize
from .rate_curve import RateCurve

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
