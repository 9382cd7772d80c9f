"""What all charts share: colours, type, and the filter by run."""

from collections.abc import Sequence
from typing import Any

import altair as alt

# After Okabe & Ito 2008, "Color Universal Design", made darker or lighter until each stands out
# from the page (contrast of 3 to 1, WCAG 1.4.11).
LIGHT = ["#0072b2", "#d55e00", "#00805c", "#b0528a", "#8f6b00", "#2187b8", "#5a48b5", "#5b616b"]
DARK = ["#56b4e9", "#ff8f47", "#2ecc9a", "#e792c4", "#e8c547", "#a5dbf9", "#aea3f5", "#bcc3ce"]

# Beyond eight runs colours come again, with another dash.
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

HIDDEN = "hidden"
"""The signal that holds the names of the runs that the reader switched off."""


def config(*, dark: bool) -> dict[str, Any]:
    """Vega-Lite's `config` for a light or a dark page."""
    ink, faint, line = (
        ("#e7e9ee", "#a4abb8", "#343a46") if dark else ("#1c2230", "#5a6272", "#e3e6eb")
    )
    return {
        "background": "transparent" if dark else "white",
        "font": FONT,
        "view": {"stroke": None},
        "range": {"category": DARK if dark else LIGHT},
        "axis": {
            "domain": False,
            "ticks": False,
            "gridColor": line,
            "labelColor": faint,
            "labelFontSize": 12,
            "labelPadding": 6,
            "titleColor": faint,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 10,
        },
        "axisX": {"grid": False, "domain": True, "domainColor": faint},
        "legend": {
            "labelColor": ink,
            "labelFontSize": 12,
            "labelLimit": 260,
            "titleColor": faint,
            "titleFontWeight": "normal",
            "orient": "top",
            "direction": "horizontal",
            "columns": 3,
        },
        "title": {
            "color": ink,
            "fontSize": 15,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 12,
            "subtitleColor": faint,
            "subtitleFontSize": 12,
            "subtitlePadding": 6,
        },
        "line": {"strokeWidth": 2},
        "rule": {"color": faint},
        "text": {"color": faint, "fontSize": 12},
    }


def run_colour(names: Sequence[str]) -> alt.Color:
    """A colour for each run, the same in every chart."""
    return alt.Color("run:N", scale=alt.Scale(domain=list(names)), title=None)


def line_dash(field: str, names: Sequence[str], **options: Any) -> alt.StrokeDash:
    """Full lines for the first names of a field, another dash each time the colours come again."""
    dashes = [_DASHES[index // len(LIGHT) % len(_DASHES)] for index in range(len(names))]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash(f"{field}:N", scale=scale, title=None, **options)


def shown_runs(chart: alt.Chart) -> alt.Chart:
    """The chart without the runs that the reader switched off."""
    return chart.transform_filter(f"indexof({HIDDEN}, datum.run) < 0")


def hidden_param() -> Any:
    """The signal `HIDDEN`, to be added to the whole chart."""
    return alt.param(name=HIDDEN, value=[])
