"""What all charts share: colours, type, and the filter by run."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

# Ten colours that differ (by 20 in CIEDE2000), to readers with red-green blindness too (by 9 in the
# simulation of Machado et al. 2009), and stand out from the page (contrast of 3 to 1, WCAG 1.4.11).
# They began as those of Okabe & Ito 2008, "Color Universal Design".
LIGHT = [
    *("#186cc9", "#d55e00", "#05805b", "#c44094", "#9d814a"),
    *("#079ece", "#5330d0", "#676a73", "#8b1819", "#0c2e4b"),
]
DARK = [
    *("#4696c3", "#ff8f47", "#2fcc9a", "#d1619f", "#f7cf3e"),
    *("#9ae0ff", "#9e8cff", "#aaacba", "#fb5d5e", "#f4f0e6"),
]

# Dashes of the first ten lines, of the next ten, and so on.
_DASHES: list[list[float]] = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'

HIDDEN = "hidden"
"""The signal with the names of the runs that the reader hid."""


def config(*, dark: bool) -> dict[str, Any]:
    """Return the `config` of Vega-Lite for a light or a dark page."""
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
            "labelLimit": 320,
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


def run_colour(names: Sequence[str], **options: Any) -> alt.Color:
    """Give each run a colour, the same in every chart.

    Args:
        names: The names of all runs, in the order of their colours.
        **options: Further options of the channel.
    """
    return alt.Color("run:N", scale=alt.Scale(domain=list(names)), title=None, **options)


def line_dash(
    field: str,
    names: Sequence[str],
    *,
    special: Mapping[str, Sequence[float]] | None = None,
    **options: Any,
) -> alt.StrokeDash:
    """Give names solid lines, and other dashes each time the colours repeat.

    Args:
        field: The column of the names.
        names: In the order of their colours.
        special: The dashes of names that have their own.
        **options: Further options of the channel.
    """
    own = special or {}
    dashes = [
        own.get(name, _DASHES[index // len(LIGHT) % len(_DASHES)])
        for index, name in enumerate(names)
    ]
    scale = alt.Scale(domain=list(names), range=dashes)
    return alt.StrokeDash(f"{field}:N", scale=scale, title=None, **options)


def whole_number_axis() -> alt.Axis:
    """Return an axis whose labels are whole numbers, each once."""
    # With few values Vega places ticks at halves in spite of `tickMinStep`.
    return alt.Axis(format="d", tickMinStep=1, labelExpr="datum.value % 1 === 0 ? datum.label : ''")


def shown_runs(chart: alt.Chart) -> alt.Chart:
    """Return the chart without the runs that the reader hid."""
    return chart.transform_filter(f"indexof({HIDDEN}, datum.run) < 0")


def hidden_param() -> Any:
    """Return the signal `HIDDEN`, to add to the whole chart."""
    return alt.param(name=HIDDEN, value=[])
