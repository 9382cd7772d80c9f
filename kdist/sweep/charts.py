"""What the charts of sweeps share: figures that need no display, files written whole."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def figure(*, width: float, height: float) -> Figure:
    """An empty figure, inches wide and high, that pyplot does not know of."""
    chart = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(chart)
    return chart


def save(chart: Figure, path: Path) -> Path:
    """Write a figure as PNG, whole or not at all."""
    part = path.with_name(f".{path.name}")
    try:
        chart.savefig(part, dpi=130, format="png")
        return part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
